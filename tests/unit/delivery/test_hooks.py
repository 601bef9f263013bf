"""Callbacks and hooks, including those that raise an exception."""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaError

from producer_core import MessageStatus
from producer_core.events import Hook
from tests.fixtures.enqueueing import Outcomes, quick_producer


def test_the_callback_is_called_once_when_the_message_is_settled():
    calls = []
    producer, _ = quick_producer(lambda delivery: KafkaError.REQUEST_TIMED_OUT)

    producer.send_message("orders", {}, callback=lambda *seen: calls.append(seen))
    producer.flush(5)

    ((ok, message, error),) = calls
    assert (ok, message.status, message.retry_count) == (False, MessageStatus.DLQ, 2)
    assert "imed out" in str(error)
    producer.close()


def test_an_exception_in_a_callback_does_not_stop_the_thread(caplog):
    producer, _ = quick_producer()

    producer.send_message("orders", {}, callback=lambda *seen: 1 / 0)
    producer.flush(5)
    producer.send_message("orders", {})
    producer.flush(5)

    assert producer.get_stats()["messages_sent"] == 2
    assert "delivery callback failed" in caplog.text
    producer.close()


class RaisingHook(Hook):
    """Raises an exception for every event."""

    def acknowledged(self, batch):
        raise ZeroDivisionError

    died = duplicate = attempt_failed = notice = client_statistics = acknowledged


def test_an_exception_in_a_hook_affects_neither_messages_nor_threads(caplog):
    outcomes = Outcomes()
    producer, _ = quick_producer(
        lambda delivery: KafkaError.POLICY_VIOLATION if b"bad" in delivery.value else None,
        hooks=(RaisingHook(), outcomes),
    )

    for value in ({"n": 1}, {"n": "bad"}, {"n": 2}):
        producer.send_message("orders", value)
        producer.flush(5)

    assert (len(outcomes.acked), len(outcomes.dead)) == (2, 1)
    assert "hook failed" in caplog.text
    producer.close()


def test_a_statistics_listener_may_be_added_later_and_may_raise(caplog):
    producer, transport = quick_producer()
    received = []

    producer.add_statistics_listener(partial(int, base=0))  # raises, and has no name
    producer.add_statistics_listener(received.append)
    transport.emit_statistics()

    assert received[-1]["brokers"]["memory"]["state"] == "UP"
    assert "hook failed" in caplog.text
    assert not producer.closed
    producer.close()
    assert producer.closed

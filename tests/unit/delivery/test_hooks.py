"""Callbacks and hooks, including those that raise an exception."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from confluent_kafka import KafkaError

from producer_core import MessageStatus, ProducerError
from producer_core.events import Hook
from tests.fixtures.enqueueing import Outcomes, quick_producer
from tests.support import eventually


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


def test_close_returns_although_callbacks_never_do(caplog):
    never = threading.Event()
    producer, _ = quick_producer(lambda delivery: "hold" if b"held" in delivery.value else None)
    for value in ({"n": 1}, {"n": 2}, {"n": "held"}):
        producer.send_message("orders", value, on_delivery=lambda report: never.wait(60))
    eventually(lambda: producer.metrics.snapshot().acknowledged == 2)

    report = producer.close(timeout=1)

    assert not never.is_set()
    assert (report.acknowledged, report.dead) == (2, 1)
    assert "close() does not wait for delivery callbacks: not_returned=1" in caplog.text
    never.set()


def test_a_callback_that_blocks_delays_no_acknowledgement_of_the_same_reports():
    proceed = threading.Event()
    producer, transport = quick_producer(lambda delivery: "hold")
    for number in range(3):
        producer.send_message("orders", {"n": number}, on_delivery=lambda report: proceed.wait(60))
    eventually(lambda: transport.held == 3)

    reporting = threading.Thread(target=transport.release)
    reporting.start()
    eventually(lambda: producer.metrics.snapshot().acknowledged == 3)

    assert reporting.is_alive(), "it is in the first callback"
    proceed.set()
    reporting.join()
    producer.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.flush(1),
        lambda producer: producer.send_batch("orders", [{}]),
        lambda producer: producer.replay_dlq_messages("orders"),
        lambda producer: producer.send_frame(None, "orders"),
    ],
)
def test_a_call_that_waits_for_reports_raises_in_a_callback(call):
    errors = []

    def wait_in_callback(report):
        with pytest.raises(ProducerError, match="in a delivery callback") as caught:
            call(producer)
        errors.append(caught.value)

    producer, _ = quick_producer()
    producer.send_message("orders", {}, on_delivery=wait_in_callback)
    producer.flush(30)

    assert len(errors) == 1
    producer.close()

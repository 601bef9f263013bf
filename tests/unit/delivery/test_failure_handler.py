"""A failed attempt: its verdict, its retries, and the end of a producer."""

from __future__ import annotations

import ctypes
import threading

import pytest
from confluent_kafka import KafkaError

from producer_core import MessageStatus, ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.errors import ProducerClosed
from tests.fixtures.enqueueing import quick_producer
from tests.support import eventually

INIT_PRODUCER_ID = 22
"""The API key of the request for a producer id."""


def test_a_retry_sends_the_message_again_and_counts_as_successful():
    tries = []
    producer, transport = quick_producer(
        lambda delivery: tries.append(1) or (KafkaError.REQUEST_TIMED_OUT if len(tries) < 3 else None)
    )

    producer.send_message("orders", {"a": 1})
    producer.flush(5)

    assert len(transport.log["orders"]) == 1
    stats = producer.get_stats()
    assert (stats["messages_sent"], stats["messages_retried"], stats["messages_dlq"]) == (1, 2, 0)
    assert stats["retry_stats"]["successful_retries"] == 1
    producer.close()


def test_the_message_id_stays_the_same_through_retries():
    seen = []
    producer, transport = quick_producer(
        lambda delivery: (
            seen.append(delivery.record_headers[0])
            or (None if len(seen) > 1 else KafkaError.REQUEST_TIMED_OUT)
        )
    )

    producer.send_message("orders", {})
    producer.flush(5)

    assert seen[0] == seen[1] == transport.log["orders"][0].record_headers[0]
    producer.close()


def test_a_later_rejection_does_not_resolve_an_earlier_ambiguous_attempt():
    codes = iter([KafkaError.REQUEST_TIMED_OUT, KafkaError.POLICY_VIOLATION])
    producer, _ = quick_producer(lambda delivery: next(codes))

    message_id = producer.send_message("orders", {})
    producer.flush(5)

    assert producer.dlq.get(message_id).verdict == "possibly_persisted"
    producer.close()


def test_a_slow_rejection_does_not_get_the_verdict_rejected():
    producer, _ = quick_producer(lambda delivery: KafkaError.POLICY_VIOLATION, memory={"latency": 0.45})

    message_id = producer.send_message("orders", {})
    producer.flush(5)

    assert producer.dlq.get(message_id).verdict == "possibly_persisted"
    producer.close()


@pytest.mark.slow
def test_the_wait_for_the_producer_id_does_not_make_a_rejection_ambiguous():
    """With real librdkafka. The wait is longer than the limit of a proof, 0.4 s."""
    with embedded.start() as broker:
        broker.reject("refunds", "POLICY_VIOLATION")
        for number in (1, 2, 3):
            code, wait_ms = ctypes.c_int(0), ctypes.c_int(1000)
            broker._mock._do("broker_push_request_error_rtts", number, INIT_PRODUCER_ID, 1, code, wait_ms)
        producer = ReliableKafkaProducer(
            broker.bootstrap_servers, None, RetryConfig(max_retries=0), store=None
        )
        ids = [producer.send_message("refunds", {"n": n}, "key") for n in range(3)]
        producer.flush(10)
        verdicts = [producer.dlq.get(message_id).verdict for message_id in ids]
        producer.close()

    assert verdicts == ["rejected"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("interval_ms", [0, 600_000])
def test_without_statistics_a_rejection_is_possibly_persisted_at_once(interval_ms):
    """With real librdkafka. Nothing proves that the client transmitted the message only once."""
    with embedded.start() as broker:
        broker.reject("refunds", "POLICY_VIOLATION")
        config = {"statistics_interval_ms": interval_ms}
        with ReliableKafkaProducer(broker.bootstrap_servers, config, store=None) as producer:
            message_id = producer.send_message("refunds", {"n": 1})
            producer.flush(30)
            assert producer.dlq.get(message_id).verdict == "possibly_persisted"


@pytest.mark.slow
def test_a_rejection_of_the_topic_does_not_prove_that_a_waiting_message_was_not_written():
    """With real librdkafka. The message waits for its retry when another request of its topic is rejected."""
    with embedded.start(topics={"orders": 2}) as broker:
        config = {"linger_ms": 0}
        with ReliableKafkaProducer(broker.bootstrap_servers, config, store=None) as producer:
            for number in (0, 1):
                producer.send_message("orders", b"warm", partition=number)
            producer.flush(10)
            broker.fail_next("orders", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", 1)
            broker.fail_next("orders", "TOPIC_AUTHORIZATION_FAILED", 20)
            first = producer.send_message("orders", b"1", partition=0)
            threading.Event().wait(0.1)  # the response to the first arrives; its retry is due after 0.5 s
            producer.send_message("orders", b"2", partition=1)
            producer.flush(20)

            dead_letter = producer.dlq.get(first)
    assert (dead_letter.code, dead_letter.verdict) == ("TOPIC_AUTHORIZATION_FAILED", "possibly_persisted")


def test_close_turns_unsettled_messages_into_dead_letters():
    producer, _ = quick_producer(lambda delivery: "hold")

    ids = [producer.send_message("orders", {"n": n}) for n in range(3)]
    report = producer.close(timeout=0.1)

    assert (report.acknowledged, report.dead, report.lost) == (0, 3, 0)
    assert {producer.dlq.get(message_id).verdict for message_id in ids} == {"possibly_persisted"}
    with pytest.raises(ProducerClosed):
        producer.send_message("orders", {})


@pytest.mark.slow
def test_close_keeps_a_message_that_waits_for_its_retry():
    hook = RetryConfig(max_retries=5, initial_delay_ms=60_000, max_delay_ms=60_000)
    producer, _ = quick_producer(lambda delivery: KafkaError.REQUEST_TIMED_OUT, retry=hook)

    message_id = producer.send_message("orders", {})
    eventually(lambda: producer.get_message_status(message_id) is MessageStatus.RETRYING)
    report = producer.close(timeout=0.1)

    assert report.dead == 1
    assert producer.dlq.get(message_id).code == "REQUEST_TIMED_OUT"

"""Verdicts of failed messages with real librdkafka."""

from __future__ import annotations

import os
import uuid

import pytest
from click.testing import CliRunner

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.cli import main
from producer_core.kafka.classify import failure_of
from tests.scenarios.replays.reading import read
from tests.support import eventually


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 1}) as running:
        yield running


def send(broker, **config):
    quick = RetryConfig(max_retries=0)
    with ReliableKafkaProducer(broker.bootstrap_servers, config, quick, store=None) as producer:
        message_id = producer.send_message("orders", {"n": 1})
        return eventually(lambda: producer.dlq.get(message_id), timeout=20)


def test_a_rejection_in_the_first_second_never_has_the_verdict_not_sent(broker):
    broker.reject("orders", "POLICY_VIOLATION")
    assert send(broker).verdict in ("rejected", "possibly_persisted")


def test_a_rejection_after_a_retry_inside_librdkafka_is_possibly_persisted(broker):
    broker.fail_next("orders", "REQUEST_TIMED_OUT", 1)
    broker.fail_next("orders", "POLICY_VIOLATION", 1)
    assert send(broker).verdict == "possibly_persisted"


def test_a_quick_rejection_of_a_connected_client_is_rejected(broker):
    quick = RetryConfig(max_retries=0)
    with ReliableKafkaProducer(broker.bootstrap_servers, None, quick, store=None) as producer:
        producer.send_message("orders", {"warm": 1})
        producer.flush(10)
        broker.fail_next("orders", "POLICY_VIOLATION", 1)
        message_id = producer.send_message("orders", {"n": 1})
        dead_letter = eventually(lambda: producer.dlq.get(message_id), timeout=20)
    assert dead_letter.verdict == "rejected"


def test_a_rejected_replay_is_shown_as_a_further_transmission(broker, tmp_path):
    quick, store = RetryConfig(max_retries=0), tmp_path / "store.duckdb"
    with ReliableKafkaProducer(broker.bootstrap_servers, None, quick, store=store) as producer:
        producer.send_message("orders", {"warm": 1})
        producer.flush(10)
        broker.reject("orders", "POLICY_VIOLATION")
        message_id = producer.send_message("orders", {"n": 1})
        eventually(lambda: producer.dlq.get(message_id), timeout=20)
        assert producer.replay_dlq_messages("orders", timeout=60) == 0

    shown = CliRunner().invoke(main, ["dlq", "show", message_id, "--store", str(store)]).output
    assert "rejected: The broker rejected the replay's only transmission (POLICY_VIOLATION)." in shown
    assert "message's only" not in shown


def test_a_timeout_of_a_client_that_has_sent_before_is_possibly_persisted(broker):
    quick = RetryConfig(max_retries=0)
    config = {"delivery_timeout_ms": 1500, "linger_ms": 0}
    with ReliableKafkaProducer(broker.bootstrap_servers, config, quick, store=None) as producer:
        producer.send_message("orders", {"warm": 1})
        producer.flush(10)
        broker.down()
        message_id = producer.send_message("orders", {"n": 1})
        dead_letter = eventually(lambda: producer.dlq.get(message_id), timeout=20)
    assert (dead_letter.verdict, dead_letter.code) == ("possibly_persisted", "_MSG_TIMED_OUT")


def test_a_late_rejection_explains_its_verdict(broker):
    """A new client has to connect first, so its messages are no longer new when the broker rejects them."""
    broker.fail_next("orders", "REQUEST_TIMED_OUT", 1)
    broker.fail_next("orders", "MSG_SIZE_TOO_LARGE", 1)
    dead_letter = send(broker)

    assert dead_letter.verdict == "possibly_persisted"
    assert dead_letter.verdict_reason == (
        "Attempt 1: The broker rejected the message (MSG_SIZE_TOO_LARGE), but an earlier transmission may have been written."
    )


@pytest.mark.kafka
@pytest.mark.parametrize("batch_size", [None, 280])
def test_one_too_large_message_fails_its_whole_batch_and_smaller_batches_avoid_that(kafka, batch_size):
    """Send 20 messages of 20 bytes and 20 of 500 bytes to a topic with max.message.bytes=300.

    librdkafka puts them into one batch and gives each message the code of the batch. The code does not tell which message is
    too large, so neither may its explanation.
    """
    topic = f"small-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1, config={"max.message.bytes": "300"})
    config = {"linger_ms": 1000, **({} if batch_size is None else {"batch_size": batch_size})}
    with ReliableKafkaProducer(kafka.bootstrap_servers, config, store=None) as producer:
        producer.send_message(topic, b"warm")
        producer.flush(30)
        ids = [
            (producer.send_message(topic, b"s" * 20), producer.send_message(topic, os.urandom(500)))
            for _ in range(20)
        ]
        producer.flush(60)
        assert producer.pending_count == 0
        dead = [
            [dead_letter for one in column if (dead_letter := producer.dlq.get(one))]
            for column in zip(*ids, strict=True)
        ]
    written = len(read(kafka.bootstrap_servers, topic)) - 1

    small, large = dead
    assert (len(small), len(large), written) == ((20, 20, 0) if batch_size is None else (0, 20, 20))
    assert {dead_letter.code for dead_letter in (*small, *large)} == {"MSG_SIZE_TOO_LARGE"}
    assert {dead_letter.verdict for dead_letter in (*small, *large)} <= {"rejected", "possibly_persisted"}
    meaning = failure_of("MSG_SIZE_TOO_LARGE")
    assert "the batch that contains it" in meaning.meaning
    assert "set batch_size below the topic's limit" in meaning.advice

"""No message is lost when a journal is restored from a backup or a snapshot, as counted by an independent consumer."""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from producer_core import ReliableKafkaProducer
from producer_core.messages import ID_HEADER

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka):
    name = f"restored-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2)
    return name


def values_by_id(kafka, topic):
    """Return the values that a read_committed consumer reads, grouped by the id in the record."""
    by_id, ended = defaultdict(list), set()
    reader = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    reader.assign([TopicPartition(topic, number, 0) for number in range(2)])
    while len(ended) < 2:
        for message in reader.consume(500, timeout=1):
            if message.error() is None:
                by_id[dict(message.headers())[ID_HEADER]].append(int(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    reader.close()
    return by_id


@pytest.mark.parametrize("sent_before_copy", ["half", "none"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_no_message_is_lost_when_a_journal_is_restored_from_a_copy(
    kafka, topic, tmp_path, delivery, sent_before_copy
):
    """`sent_before_copy` is the share of the messages that was sent before the journal was copied."""
    journal, copy = tmp_path / "j", tmp_path / "copy"

    def run_producer(numbers, *, copied=False):
        with ReliableKafkaProducer(
            kafka.bootstrap_servers, store=None, journal_dir=journal, delivery=delivery
        ) as producer:
            half = len(numbers) // 2 if sent_before_copy == "half" else 0
            for number in numbers[:half]:
                producer.send_message(topic, b"%d" % number, f"k{number % 5}")
            producer.flush()
            for number in numbers[half:]:
                producer.send_message(topic, b"%d" % number, f"k{number % 5}")
            if copied:  # while some messages are in flight
                shutil.copytree(journal, copy)
            producer.flush()
        return producer.close()

    run_producer(range(200), copied=True)
    run_producer(range(200, 400))
    shutil.rmtree(journal)
    copy.rename(journal)
    last = run_producer(range(400, 600))

    by_id = values_by_id(kafka, topic)
    assert {len(set(values)) for values in by_id.values()} == {1}  # no two messages share an id
    delivered = sorted(number for values in by_id.values() for number in values)
    assert sorted(set(delivered)) == list(range(600))
    if delivery == "exactly_once":
        assert delivered == list(range(600))
    assert (last.dead, last.journaled, last.lost) == (0, 0, 0)

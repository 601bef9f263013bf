"""A journal that is put back from a copy (a backup, a snapshot of a machine), counted by an independent reader."""

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


def by_id(kafka, topic):
    """The values that a read_committed reader sees, by the id in the record."""
    found, ended = defaultdict(list), set()
    reader = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    reader.assign([TopicPartition(topic, number, 0) for number in range(2)])
    while len(ended) < 2:
        for message in reader.consume(500, timeout=1):
            if message.error() is None:
                found[dict(message.headers())[ID_HEADER]].append(int(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    reader.close()
    return found


@pytest.mark.parametrize("before", ["half", "none"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_no_message_is_lost_when_a_journal_is_put_back_from_a_copy(kafka, topic, tmp_path, delivery, before):
    """`before`: how many of its messages the journal had sent when it was copied."""
    journal, copy = tmp_path / "j", tmp_path / "copy"

    def life(numbers, *, copied=False):
        with ReliableKafkaProducer(
            kafka.bootstrap_servers, store=None, journal_dir=journal, delivery=delivery
        ) as producer:
            half = len(numbers) // 2 if before == "half" else 0
            for number in numbers[:half]:
                producer.send_message(topic, b"%d" % number, f"k{number % 5}")
            producer.flush()
            for number in numbers[half:]:
                producer.send_message(topic, b"%d" % number, f"k{number % 5}")
            if copied:  # while some are on their way
                shutil.copytree(journal, copy)
            producer.flush()
        return producer.close()

    life(range(200), copied=True)
    life(range(200, 400))
    shutil.rmtree(journal)
    copy.rename(journal)
    last = life(range(400, 600))

    found = by_id(kafka, topic)
    assert {len(set(values)) for values in found.values()} == {1}  # no two messages share an id
    copies = sorted(number for values in found.values() for number in values)
    assert sorted(set(copies)) == list(range(600))
    if delivery == "exactly_once":
        assert copies == list(range(600))
    assert (last.dead, last.journaled, last.lost) == (0, 0, 0)

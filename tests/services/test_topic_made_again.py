"""A topic that is deleted and made again under an exactly-once producer, with foreign records past its old offsets."""

from __future__ import annotations

import shutil
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from producer_core import ReliableKafkaProducer
from tests.support import eventually

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka):
    name = f"again-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2)
    return name


def committed(kafka, topic):
    """The values that a read_committed reader sees, but for the foreign ones."""
    found, ended = [], set()
    reader = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    reader.assign([TopicPartition(topic, number, 0) for number in range(2)])
    while len(ended) < 2:
        for message in reader.consume(500, timeout=1):
            if message.error() is None:
                found += [int(message.value())] if message.value() != b"foreign" else []
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    reader.close()
    return sorted(found)


@pytest.mark.parametrize("restarted", [False, True], ids=["the same producer", "a new start"])
def test_what_is_accepted_after_a_topic_was_made_again_is_on_it_once(kafka, topic, tmp_path, restarted):
    def send(producer, numbers):
        for number in numbers:
            producer.send_message(topic, b"%d" % number, f"k{number % 7}")
        producer.flush(120)

    def opened():
        return ReliableKafkaProducer(
            kafka.bootstrap_servers, store=None, journal_dir=tmp_path / "j", delivery="exactly_once"
        )

    producer = opened()
    send(producer, range(200))
    if restarted:
        producer.close()

    kafka.delete_topic(topic)
    eventually(lambda: kafka.create_topic(topic, partitions=2) or True, 30)
    foreign = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(1000):  # past every offset that ours had
        foreign.produce(topic, b"foreign", partition=number % 2)
    assert foreign.flush(60) == 0

    producer = opened() if restarted else producer
    send(producer, range(200, 400))
    report = producer.close()

    assert committed(kafka, topic) == list(range(200, 400))
    assert (report.dead, report.journaled, report.lost) == (0, 0, 0)


def test_a_crash_after_the_topic_was_made_again_and_grew_past_the_old_offsets_writes_nothing_twice(
    kafka, topic, tmp_path
):
    journal, copy = tmp_path / "j", tmp_path / "copy"

    def opened():
        return ReliableKafkaProducer(
            kafka.bootstrap_servers, store=None, journal_dir=journal, delivery="exactly_once"
        )

    def send(producer, numbers):
        for number in numbers:
            producer.send_message(topic, b"%d" % number, f"k{number % 7}")

    producer = opened()
    send(producer, range(1000))
    producer.flush(120)
    kafka.delete_topic(topic)
    eventually(lambda: kafka.create_topic(topic, partitions=2) or True, 30)
    send(producer, range(1000, 1050))  # below every offset that is written down
    producer.flush(120)
    send(producer, range(1050, 1100))
    shutil.copytree(journal, copy)  # as a killed process leaves it: committed, and not settled
    producer.flush(120)
    producer.close()

    foreign = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(4000):
        foreign.produce(topic, b"foreign", partition=number % 2)
    assert foreign.flush(60) == 0
    shutil.rmtree(journal)
    copy.rename(journal)
    producer = opened()
    producer.flush(120)
    producer.close()

    assert committed(kafka, topic) == list(range(1000, 1100))

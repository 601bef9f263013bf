"""A topic that is deleted and recreated under an exactly-once producer, with other records beyond its old offsets.

Both cores run the tests.
"""

from __future__ import annotations

import shutil
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from producer_core import ReliableKafkaProducer
from tests.fixtures.native_core import require_core
from tests.support import eventually

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["python", "native"])
def core(request):
    if request.param == "native":
        require_core()
    return request.param


@pytest.fixture
def topic(kafka):
    name = f"again-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2)
    return name


def own_values(kafka, topic):
    """Return the values that a read_committed consumer reads, without those of another producer."""
    values, ended = [], set()
    reader = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    reader.assign([TopicPartition(topic, number, 0) for number in range(2)])
    while len(ended) < 2:
        for message in reader.consume(500, timeout=1):
            if message.error() is None:
                values += [int(message.value())] if message.value() != b"foreign" else []
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    reader.close()
    return sorted(values)


@pytest.mark.parametrize("restarted", [False, True], ids=["the same producer", "a new start"])
def test_messages_accepted_after_a_topic_was_recreated_are_on_it_once(
    kafka, topic, tmp_path, restarted, core
):
    def send(producer, numbers):
        for number in numbers:
            producer.send_message(topic, b"%d" % number, f"k{number % 7}")
        producer.flush(120)

    def open_producer():
        return ReliableKafkaProducer(
            kafka.bootstrap_servers,
            store=None,
            journal_dir=tmp_path / "j",
            delivery="exactly_once",
            core=core,
        )

    producer = open_producer()
    send(producer, range(200))
    if restarted:
        producer.close()

    kafka.delete_topic(topic)
    eventually(lambda: kafka.create_topic(topic, partitions=2) or True, 30)
    foreign = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(1000):  # beyond every offset of the earlier records
        foreign.produce(topic, b"foreign", partition=number % 2)
    assert foreign.flush(60) == 0

    producer = open_producer() if restarted else producer
    send(producer, range(200, 400))
    report = producer.close()

    assert own_values(kafka, topic) == list(range(200, 400))
    assert (report.dead, report.journaled, report.lost) == (0, 0, 0)


def test_a_crash_after_a_topic_was_recreated_and_grew_past_the_old_offsets_writes_no_duplicates(
    kafka, topic, tmp_path, core
):
    journal, copy = tmp_path / "j", tmp_path / "copy"

    def open_producer():
        return ReliableKafkaProducer(
            kafka.bootstrap_servers, store=None, journal_dir=journal, delivery="exactly_once", core=core
        )

    def send(producer, numbers):
        for number in numbers:
            producer.send_message(topic, b"%d" % number, f"k{number % 7}")

    producer = open_producer()
    send(producer, range(1000))
    producer.flush(120)
    kafka.delete_topic(topic)
    eventually(lambda: kafka.create_topic(topic, partitions=2) or True, 30)
    send(producer, range(1000, 1050))  # below every stored offset
    producer.flush(120)
    send(producer, range(1050, 1100))
    shutil.copytree(journal, copy)  # the state of a killed process: committed but not settled

    producer.flush(120)
    producer.close()

    foreign = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(4000):
        foreign.produce(topic, b"foreign", partition=number % 2)
    assert foreign.flush(60) == 0
    shutil.rmtree(journal)
    copy.rename(journal)
    producer = open_producer()
    producer.flush(120)
    producer.close()

    assert own_values(kafka, topic) == list(range(1000, 1100))

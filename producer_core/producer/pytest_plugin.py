"""Fixtures for the tests of applications that send with producer_core. pytest loads this module by itself.

def test_an_order_is_sent(producer_core_producer, producer_core_records):
    place_order(producer_core_producer)
    producer_core_producer.flush()
    assert [record.key() for record in producer_core_records("orders")] == [b"alice"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from confluent_kafka import Message

    from producer_core.brokers.embedded import EmbeddedBroker
    from producer_core.producer.producer import ReliableKafkaProducer

_READ_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 3.0
"""Seconds for pending messages after a test, which may have ended during a simulated outage."""


@pytest.fixture
def producer_core_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker for one test. It creates a topic with four partitions when it is first used."""
    from producer_core.brokers import embedded

    with embedded.start(brokers=1) as broker:
        yield broker


@pytest.fixture
def producer_core_producer(
    producer_core_broker: EmbeddedBroker, tmp_path: Path
) -> Iterator[ReliableKafkaProducer]:
    """A producer on the embedded broker, with its own store in `tmp_path`. It is closed after the test."""
    from producer_core.producer.producer import ReliableKafkaProducer

    servers, store = producer_core_broker.bootstrap_servers, tmp_path / "producer-core.duckdb"
    producer = ReliableKafkaProducer(servers, {"linger.ms": 0}, store=store)
    try:
        yield producer
    finally:
        producer.close(timeout=_CLOSE_TIMEOUT_S)


@pytest.fixture
def producer_core_records(producer_core_broker: EmbeddedBroker) -> Callable[[str], list[Message]]:
    """A function that returns the records of a topic, as confluent-kafka's messages, by partition and offset."""

    def records(topic: str) -> list[Message]:
        return _records(producer_core_broker.bootstrap_servers, topic)

    return records


def _records(servers: str, topic: str) -> list[Message]:
    """Read a topic to its present end. Raise TimeoutError if that takes too long."""
    import time

    from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

    from producer_core.kafka import clients

    too_late = TimeoutError(f"The records of {topic} were not read within {_READ_TIMEOUT_S:g} s.")
    deadline = time.monotonic() + _READ_TIMEOUT_S
    with clients.reader({"bootstrap.servers": servers}, name="pytest") as consumer:
        try:
            metadata = consumer.list_topics(topic, timeout=_READ_TIMEOUT_S)
        except KafkaException as failure:
            if failure.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                raise too_late from failure
            raise
        partitions = set(metadata.topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[Message] = []
        while partitions:
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                raise too_late
    return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))

"""The read of a ledger topic whose partitions report earlier ends than when the audit began."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer, TopicPartition

from producer_core.brokers import embedded
from producer_core.errors import BrokerError
from producer_core.kafka.clients import reader
from producer_core.pipeline.integrity import ledger_topic
from producer_core.pipeline.integrity.spans import PartitionBounds

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def broker():
    with embedded.start(topics={"ledger": 2}) as running:
        yield running


def send(broker, *values, partition=0):
    client = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        client.produce("ledger", value, partition=partition)
    assert client.flush(30) == 0


def test_records_after_an_early_end_of_a_partition_are_read(broker):
    """The consumer has reported the early end before the rest arrives."""
    send(broker, b"0", b"1", b"2")
    ends = {0: 5}
    with reader({"bootstrap.servers": broker.bootstrap_servers}) as consumer:
        consumer.assign([TopicPartition("ledger", 0, 0)])
        watched = EndSeen(consumer, lambda: send(broker, b"3", b"4", b"5"))
        values = [message.value() for message in ledger_topic._messages(watched, "ledger", ends)]

    assert watched.ends == [3] and values == [b"0", b"1", b"2", b"3", b"4"] and not ends


class EndSeen:
    """Passes calls on to a consumer, and calls `then` at the first end of a partition."""

    def __init__(self, consumer, then):
        self._consumer, self._then, self.ends = consumer, then, []

    def consume(self, count, timeout):
        messages = self._consumer.consume(count, timeout)
        for message in messages:
            if message.error() is not None and not self.ends:
                self.ends.append(message.offset())
                self._then()
        return messages

    def pause(self, partitions):
        self._consumer.pause(partitions)


def test_a_partition_that_stays_shorter_than_its_bounds_is_an_error(broker, monkeypatch):
    monkeypatch.setattr(ledger_topic, "_TIMEOUT", 1.0)
    send(broker, b"0", b"1", b"2")
    send(broker, b"0", partition=1)
    bounds = {0: PartitionBounds(0, 5, 5), 1: PartitionBounds(0, 1, 1)}

    with pytest.raises(
        BrokerError, match="Partition 0 of ledger topic ledger ends at offset 3, but ended at offset 5"
    ):
        list(ledger_topic.telemetry({"bootstrap.servers": broker.bootstrap_servers}, "ledger", bounds))

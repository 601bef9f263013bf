"""The telemetry publisher: batches on a topic, and nothing that disturbs the producer it belongs to."""

from __future__ import annotations

import logging
import time

import orjson
import pytest
from confluent_kafka import Consumer

from producer_core.brokers import embedded
from producer_core.store.batch import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow
from producer_core.telemetry import TelemetryPublisher, decode, encode
from tests.support import eventually

WHERE = (1_700_000_000, "cluster", "p1", "orders")
PRODUCER = ProducerRow(
    "p1", "cluster", "client", "host", 7, "0.1.0", 1.0, 2.0, None, True, None, 0, 0, 0, 100, 1, None, True,
    "at_least_once", "{}",
)  # fmt: skip


def batch(sequence=0):
    return Batch(
        "p1",
        sequence,
        statistics=(StatisticsRow(*WHERE, 3, 2, 1, 1, 0, 0, 0, 0, 200, 0.5),),
        latencies=(LatencyRow(*WHERE, 42, 2),),
        errors=(ErrorRow(*WHERE, "POLICY_VIOLATION", "permanent", 1),),
        producer=PRODUCER,
    )


@pytest.fixture(scope="module")
def broker():
    with embedded.start(topics={"telemetry": 1, "refused": 1}) as started:
        yield started


def read(broker, topic, count):
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        found = []

        def enough():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
            return len(found) >= count

        eventually(enough, 30)
        return found
    finally:
        consumer.close()


def test_a_batch_encoded_and_decoded_is_the_same():
    assert decode(encode(batch(3))) == batch(3)
    assert decode(encode(Batch("p1", 4))) == Batch("p1", 4)


def test_a_record_says_its_version_and_its_cluster():
    said = orjson.loads(encode(batch()))
    assert (said["v"], said["producer_id"], said["sequence"], said["cluster_id"]) == (1, "p1", 0, "cluster")


@pytest.mark.parametrize("value", [b"", b"not JSON", b"[]", b'{"v": 1}', b'{"v": 2, "producer_id": "p1"}'])
def test_what_is_no_telemetry_of_this_version_is_a_value_error(value):
    with pytest.raises(ValueError, match="telemetry"):
        decode(value)


def test_published_batches_are_on_the_topic_in_order_when_close_returns(broker):
    publisher = TelemetryPublisher(broker.bootstrap_servers, "telemetry")
    for sequence in range(5):
        publisher.publish(batch(sequence))
    publisher.close()

    assert publisher.counts == {"sent": 5}
    records = read(broker, "telemetry", 5)
    assert [decode(record.value()) for record in records] == [batch(sequence) for sequence in range(5)]
    assert {record.key() for record in records} == {b"p1"}


def test_nothing_is_sent_once_closed_and_nobody_hears_of_it(broker, caplog):
    publisher = TelemetryPublisher(broker.bootstrap_servers, "telemetry")
    publisher.close()
    with caplog.at_level(logging.DEBUG, "producer_core.telemetry"):
        publisher.publish(batch())
        publisher.close()

    assert not publisher.counts
    assert [record for record in caplog.records if record.name == "producer_core.telemetry"] == []


def test_a_refused_batch_is_counted_and_logged_with_its_code(broker, caplog):
    broker.reject("refused", "TOPIC_AUTHORIZATION_FAILED")
    publisher = TelemetryPublisher(broker.bootstrap_servers, "refused")
    publisher.publish(batch())

    eventually(lambda: publisher._poll(0.05) or publisher.counts["failed"])
    publisher.close()

    (said,) = [record for record in caplog.records if record.name == "producer_core.telemetry"]
    assert (said.levelname, said.code, said.topic) == ("WARNING", "TOPIC_AUTHORIZATION_FAILED", "refused")


def test_closing_without_a_broker_warns_and_returns_within_its_bound(caplog):
    publisher = TelemetryPublisher("127.0.0.1:1", "telemetry")
    publisher.publish(batch())
    begun = time.monotonic()
    publisher.close()

    assert time.monotonic() - begun < 30  # the bound is 5 s; without one it would be the delivery timeout
    assert "telemetry not flushed" in [record.message for record in caplog.records]

"""The telemetry publisher: batches reach the topic, and errors never affect the producer."""

from __future__ import annotations

import logging
import subprocess
import sys
import uuid
from dataclasses import replace

import orjson
import pytest
from confluent_kafka import Consumer

from producer_core.brokers import embedded
from producer_core.config import client_config
from producer_core.metrics.batch import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow
from producer_core.metrics.telemetry import TelemetryPublisher, decode, encode
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
    with embedded.start(topics={"telemetry": 1, "refused": 1, "large": 1}) as started:
        yield started


def read(broker, topic, count):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
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


def test_a_batch_survives_encoding_and_decoding():
    assert decode(encode(batch(3))) == batch(3)
    assert decode(encode(Batch("p1", 4))) == Batch("p1", 4)


def test_a_record_contains_its_version_and_its_cluster():
    record = orjson.loads(encode(batch()))
    assert (record["v"], record["producer_id"], record["sequence"], record["cluster_id"]) == (
        1,
        "p1",
        0,
        "cluster",
    )


@pytest.mark.parametrize("value", [b"", b"not JSON", b"[]", b'{"v": 1}', b'{"v": 2, "producer_id": "p1"}'])
def test_an_invalid_record_or_an_unknown_version_is_a_value_error(value):
    with pytest.raises(ValueError, match="telemetry"):
        decode(value)


@pytest.mark.slow
def test_published_batches_are_on_the_topic_in_order_when_close_returns(broker):
    publisher = TelemetryPublisher(broker.bootstrap_servers, "telemetry")
    for sequence in range(5):
        publisher.publish(batch(sequence))
    publisher.close()

    assert publisher.counts == {"sent": 5}
    records = read(broker, "telemetry", 5)
    assert [decode(record.value()) for record in records] == [batch(sequence) for sequence in range(5)]
    assert {record.key() for record in records} == {b"p1"}


def test_a_closed_publisher_drops_batches_silently(broker, caplog):
    publisher = TelemetryPublisher(broker.bootstrap_servers, "telemetry")
    publisher.close()
    with caplog.at_level(logging.DEBUG, "producer_core.metrics.telemetry"):
        publisher.publish(batch())
        publisher.close()

    assert not publisher.counts
    assert [
        record for record in caplog.records if record.name.startswith("producer_core.metrics.telemetry")
    ] == []


@pytest.mark.slow
def test_a_rejected_batch_is_counted_logged_once_with_its_code_and_sent_later(broker, caplog):
    caplog.set_level(logging.INFO, "producer_core.metrics.telemetry")
    broker.reject("refused", "TOPIC_AUTHORIZATION_FAILED")
    publisher = TelemetryPublisher(broker.bootstrap_servers, "refused")
    for sequence in range(3):
        publisher.publish(batch(sequence))
    eventually(lambda: publisher.errors["TOPIC_AUTHORIZATION_FAILED"] >= 2)
    broker.accept("refused")
    eventually(lambda: not publisher.waiting)
    publisher.close()

    assert [decode(record.value()).sequence for record in read(broker, "refused", 3)] == [0, 1, 2]
    logged = [
        record for record in caplog.records if record.name == "producer_core.metrics.telemetry.publisher"
    ]
    assert [(one.levelname, one.message) for one in logged] == [
        (
            "WARNING",
            "telemetry not sent: topic=refused, code=TOPIC_AUTHORIZATION_FAILED, "
            "error=Broker: Topic authorization failed",
        ),
        ("INFO", "telemetry delivery has recovered: topic=refused"),
    ]
    assert (logged[0].code, logged[0].topic) == ("TOPIC_AUTHORIZATION_FAILED", "refused")
    assert publisher.counts["failed"] == sum(publisher.errors.values()) and publisher.counts["sent"] == 3


@pytest.mark.slow
def test_unsent_batches_are_sent_later_in_order_without_gaps():
    with embedded.start(topics={"telemetry": 1}) as broker:
        leader = broker.leader("telemetry")
        publisher = TelemetryPublisher(broker.bootstrap_servers, "telemetry", {"message.timeout.ms": 1000})
        publisher.publish(batch(0))
        eventually(lambda: publisher.counts["sent"] == 1)
        broker.down(leader)
        for sequence in range(1, 60):
            publisher.publish(batch(sequence))
        eventually(lambda: publisher.counts["failed"] >= 2)
        assert publisher.trouble
        broker.up(leader)
        eventually(lambda: not publisher.waiting)
        publisher.close()

        found = [decode(record.value()) for record in read(broker, "telemetry", 60)]
        firsts = list(
            {one.sequence: one for one in found}
        )  # a batch with an ambiguous outcome may be there twice
        assert sorted(firsts) == list(range(60))
        assert firsts[0] == 0 and firsts[-16:] == list(range(44, 60))


QUEUES_THREE = """
import sys
from pathlib import Path
from producer_core.metrics.telemetry import TelemetryPublisher
from tests.unit.metrics.telemetry.test_publisher import batch
publisher = TelemetryPublisher("127.0.0.1:1", "telemetry", folder=Path(sys.argv[1]))
for sequence in range(3):
    publisher.publish(batch(sequence))
print("kept", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_with_a_folder_the_unsent_batches_of_a_killed_process_are_sent_by_the_next(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", QUEUES_THREE, str(tmp_path / "t")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"kept\n"
    child.kill()
    child.communicate()

    with embedded.start(topics={"telemetry": 1}) as broker:
        publisher = TelemetryPublisher(broker.bootstrap_servers, "telemetry", folder=tmp_path / "t")
        publisher.publish(batch(3))
        publisher.close()
        found = [decode(record.value()) for record in read(broker, "telemetry", 4)]
    assert found == [batch(sequence) for sequence in range(4)]
    assert list((tmp_path / "t").iterdir()) == []


def test_a_batch_that_is_too_large_is_given_up_and_counted_and_the_others_are_sent(broker):
    publisher = TelemetryPublisher(broker.bootstrap_servers, "large", {"message.max.bytes": 2000})
    large = replace(
        batch(0), statistics=tuple(StatisticsRow(*WHERE, *range(200, 209), 0.5) for _ in range(100))
    )
    for one in (large, batch(1)):
        publisher.publish(one)
    eventually(lambda: not publisher.waiting)
    assert publisher.errors == {"MSG_SIZE_TOO_LARGE": 1} and publisher.counts["sent"] == 1
    assert publisher.lost().batches == 1 and not publisher.lost()
    publisher.close()


@pytest.mark.slow
def test_batches_that_close_cannot_send_are_kept_for_the_next_start(tmp_path, caplog):
    publisher = TelemetryPublisher("127.0.0.1:1", "telemetry", folder=tmp_path)
    publisher.publish(batch())
    publisher.close(timeout=0.3)
    publisher.close()
    (warning,) = [record for record in caplog.records if record.message.startswith("telemetry not flushed")]
    assert (warning.batches, warning.kept) == (1, True) and len(list(tmp_path.iterdir())) == 1


def test_the_publishers_own_settings_are_set_only_if_absent():
    shop = client_config(
        "127.0.0.1:1", {"delivery_timeout_ms": 86_400_000, "client_id": "shop", "linger_ms": 50}
    )
    lz4 = client_config("127.0.0.1:1", {"delivery_timeout_ms": 7000, "compression_type": "lz4"})
    default, chosen = (TelemetryPublisher("127.0.0.1:1", "t", config.given) for config in (shop, lz4))
    for publisher in (default, chosen):
        publisher.close()
    names = (
        "message.timeout.ms",
        "compression.type",
        "enable.idempotence",
        "request.timeout.ms",
        "linger.ms",
    )
    assert [default._settings[name] for name in names] == [120_000, "zstd", True, 30_000, 50]
    assert [chosen._settings[name] for name in names] == [7000, "lz4", True, 30_000, 5]
    assert default._settings["client.id"].startswith("telemetry-")


@pytest.mark.slow
def test_close_without_a_broker_logs_a_warning_and_returns_within_its_timeout(caplog):
    publisher = TelemetryPublisher("127.0.0.1:1", "telemetry")
    publisher.publish(batch())
    publisher.close()  # returns after its own timeout, which is shorter than the delivery timeout

    assert "telemetry not flushed: topic=telemetry, batches=1, kept=False" in caplog.messages

"""Loss detection on a real broker: retention, an expired producer, a recreated topic, a truncated log."""

from __future__ import annotations

import contextlib
import socket
import struct
import uuid

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from producer_core.brokers import kafka as real
from tests.conftest import needs
from tests.fixtures.damaged_log import keep_batches
from tests.fixtures.loss_monitor import MonitoredProducer
from tests.support import eventually

pytestmark = pytest.mark.kafka
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A broker for this module only, because its tests stop it and damage its log."""
    needs("java", "openjdk-17-jre-headless")
    properties = {"producer.id.expiration.check.interval.ms": "200"}
    with real.start(folder=tmp_path_factory.mktemp("standing") / "one", properties=properties) as running:
        yield running


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.direct_servers, "log_level": 0})


@pytest.fixture
def topic(cluster):
    name = f"orders-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def rig(cluster, topic):
    """With `idle=0` every write triggers a check."""
    with MonitoredProducer(cluster.bootstrap_servers, topic, idle=0.0, check_interval=0.0) as producer:
        yield producer


def wait_for_finding(rig, case):
    return eventually(lambda: [item for item in rig.loss_monitor.findings if item.case == case], TIMEOUT_S)[
        -1
    ]


def test_an_acknowledged_record_on_the_log_is_recognised(rig, topic):
    rig.send(3)
    rig.send(1)

    finding = wait_for_finding(rig, "intact")
    assert finding.numbers["high_watermark"] == 4
    assert finding.numbers["record_at"] == finding.numbers["last_acknowledged"]
    assert rig.kinds() == []


def test_records_removed_by_retention_are_reported_as_information_only(rig, topic, admin):
    rig.send(3)
    admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0)].result(TIMEOUT_S)
    rig.send(1)

    finding = wait_for_finding(rig, "retention_removed")
    assert (finding.numbers["low_watermark"], finding.numbers["last_acknowledged"]) == (3, 2)
    assert eventually(rig.kinds, TIMEOUT_S)[0] == "retention_removed"
    assert not rig.loss_monitor.lost


def test_a_producer_whose_state_expired_continues_and_loses_no_record(rig, cluster, topic, admin):
    """Since Kafka 2.5 the broker accepts any sequence of an unknown producer: only a check can detect it."""
    rig.send(3)
    assert count_known_producers(cluster, topic) == 1
    with expire_producers(admin):
        eventually(lambda: count_known_producers(cluster, topic) == 0, TIMEOUT_S)
    rig.send(1)

    assert wait_for_finding(rig, "intact").numbers["high_watermark"] == 4
    assert [report.offset for report in rig.reports] == [0, 1, 2, 3]
    assert rig.failed == []


def test_a_recreated_topic_is_distinguished_from_a_loss(rig, cluster, topic):
    rig.send(5)
    eventually(lambda: rig.loss_monitor._investigation.ids.get(topic), TIMEOUT_S)
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1)
    rig.send(1)

    finding = wait_for_finding(rig, "topic_recreated")
    assert "its id was" in finding.text
    eventually(lambda: rig.kinds() == ["topic_recreated"], TIMEOUT_S)
    assert not rig.loss_monitor.lost
    rig.send(1)
    rig.send(1)
    assert wait_for_finding(rig, "intact").numbers["high_watermark"] == 3


def test_a_deleted_topic_is_reported(rig, cluster, topic):
    rig.send(2)
    cluster.delete_topic(topic)
    rig.loss_monitor.check(topic, 0)

    assert "no longer exists" in wait_for_finding(rig, "topic_recreated").text


@pytest.mark.parametrize("producer_known", [True, False], ids=["known producer", "expired producer"])
def test_a_truncated_log_is_a_loss_with_numbers(cluster, topic, admin, producer_known):
    """Like a restored backup: the broker returns OUT_OF_ORDER to a known producer, and no error to an unknown one."""
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        for _ in range(6):
            rig.send(1)  # one batch each
        cluster.stop_node(1)
        keep_batches(cluster.nodes[0].data / f"{topic}-0", 2)
        cluster.start_node(1)
        if not producer_known:
            with expire_producers(admin):
                eventually(lambda: count_known_producers(cluster, topic) == 0, TIMEOUT_S)
        rig.send(1)

        lost = wait_for_finding(rig, "acknowledged_lost")
        assert lost.numbers["last_acknowledged"] == 5
        assert lost.numbers["high_watermark"] <= 3
        eventually(lambda: "acknowledged_lost" in rig.kinds(), TIMEOUT_S)
        assert ("loss_suspected" in rig.kinds()) == producer_known
        assert set(rig.loss_monitor.lost) == {(topic, 0)}


def test_an_overwritten_record_is_a_loss(cluster, topic):
    """After truncation another producer wrote past the last offset: only the record at the offset shows the loss."""
    with (
        MonitoredProducer(cluster.bootstrap_servers, topic) as rig,
        MonitoredProducer(cluster.bootstrap_servers, topic) as other,
    ):
        for _ in range(4):
            rig.send(1)
        cluster.stop_node(1)
        keep_batches(cluster.nodes[0].data / f"{topic}-0", 2)
        cluster.start_node(1)
        other.send(10)
        rig.loss_monitor.check(topic, 0)

        assert "now has another record" in wait_for_finding(rig, "acknowledged_lost").text


# operations on the broker


@contextlib.contextmanager
def expire_producers(admin):
    """Let the broker expire the state of producers that were silent for a tenth of a second."""
    set_expiration(admin, AlterConfigOpType.SET, "100")
    yield
    set_expiration(admin, AlterConfigOpType.DELETE, None)


def set_expiration(admin, operation, value):
    entry = ConfigEntry("producer.id.expiration.ms", value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for response in admin.incremental_alter_configs([resource]).values():
        response.result(TIMEOUT_S)


def count_known_producers(cluster, topic):
    """Count the producers that the broker knows on partition 0, with DescribeProducers, which the client lacks."""
    name = topic.encode()
    body = bytes([2, len(name) + 1]) + name + b"\x02" + struct.pack(">i", 0) + b"\x00\x00"
    request = struct.pack(">hhih", 61, 0, 7, -1) + b"\x00" + body
    host, port = cluster.nodes[0].direct_address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", receive(connection, 4))
        response = receive(connection, size)
    # correlation id, tags, throttle, one topic: its name, one partition: its number, error, no message, producers
    position = 4 + 1 + 4 + 1 + 1 + len(name) + 1 + 4
    error, message, producers = struct.unpack_from(">hBB", response, position)
    assert (error, message) == (0, 0), response
    return producers - 1


def receive(connection, size):
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data)) or pytest.fail("the broker closed the connection")
    return data

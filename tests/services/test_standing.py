"""Our standing with a real broker: retention, a forgotten producer, a topic made anew, a log that was cut back."""

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
from tests.support import eventually
from tests.unit.standing_rig import Rig

pytestmark = pytest.mark.kafka
LONG = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A broker of our own: it is stopped, harmed and started again."""
    needs("java", "openjdk-17-jre-headless")
    often = {"producer.id.expiration.check.interval.ms": "200"}
    with real.start(folder=tmp_path_factory.mktemp("standing") / "one", properties=often) as running:
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
    """`idle=0`: every write counts as the first one after a long time."""
    with Rig(cluster.bootstrap_servers, topic, idle=0.0, again=0.0) as made:
        yield made


def found(rig, case):
    return eventually(lambda: [item for item in rig.loss_monitor.findings if item.case == case], LONG)[-1]


def test_what_is_there_is_found_to_be_ours(rig, topic):
    rig.send(3)
    rig.send(1)

    finding = found(rig, "intact")
    assert finding.numbers["high_watermark"] == 4
    assert finding.numbers["record_at"] == finding.numbers["last_acknowledged"]
    assert rig.kinds() == []


def test_records_that_retention_took_are_noted_and_nothing_more(rig, topic, admin):
    rig.send(3)
    admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0)].result(LONG)
    rig.send(1)

    finding = found(rig, "retention_removed")
    assert (finding.numbers["low_watermark"], finding.numbers["last_acknowledged"]) == (3, 2)
    assert eventually(rig.kinds, LONG)[0] == "retention_removed"
    assert not rig.loss_monitor.lost


def test_a_producer_that_the_broker_forgot_goes_on_and_its_records_are_there(rig, cluster, topic, admin):
    """Kafka since 2.5 takes any sequence of a producer it does not know: no code comes, only the look tells."""
    rig.send(3)
    assert known_producers(cluster, topic) == 1
    with forgetting(admin):
        eventually(lambda: known_producers(cluster, topic) == 0, LONG)
    rig.send(1)

    assert found(rig, "intact").numbers["high_watermark"] == 4
    assert [report.offset for report in rig.reports] == [0, 1, 2, 3]
    assert rig.failed == []


def test_a_topic_made_anew_is_told_from_a_loss(rig, cluster, topic):
    rig.send(5)
    eventually(lambda: rig.loss_monitor._inquiry.ids.get(topic), LONG)
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1)
    rig.send(1)

    finding = found(rig, "topic_recreated")
    assert "its id was" in finding.text
    eventually(lambda: rig.kinds() == ["topic_recreated"], LONG)
    assert not rig.loss_monitor.lost
    rig.send(1)
    rig.send(1)
    assert found(rig, "intact").numbers["high_watermark"] == 3


def test_a_topic_that_is_gone_is_said_so(rig, cluster, topic):
    rig.send(2)
    cluster.delete_topic(topic)
    rig.loss_monitor.check(topic, 0)

    assert "does not exist any more" in found(rig, "topic_recreated").text


@pytest.mark.parametrize("remembered", [True, False], ids=["known producer", "forgotten producer"])
def test_a_log_that_was_cut_back_is_a_loss_with_its_numbers(cluster, topic, admin, remembered):
    """A restored backup, as it were: the broker answers OUT_OF_ORDER where it knows us, and nothing where not."""
    with Rig(cluster.bootstrap_servers, topic) as rig:
        for _ in range(6):
            rig.send(1)  # a batch each
        cluster.stop_node(1)
        keep_batches(cluster.nodes[0].data / f"{topic}-0", 2, snapshots=remembered)
        cluster.start_node(1)
        if not remembered:
            with forgetting(admin):
                eventually(lambda: known_producers(cluster, topic) == 0, LONG)
        rig.send(1)

        lost = found(rig, "acknowledged_lost")
        assert lost.numbers["last_acknowledged"] == 5
        assert lost.numbers["high_watermark"] <= 3
        eventually(lambda: "acknowledged_lost" in rig.kinds(), LONG)
        assert ("loss_suspected" in rig.kinds()) == remembered
        assert set(rig.loss_monitor.lost) == {(topic, 0)}


def test_another_record_in_the_place_of_ours_is_a_loss_too(cluster, topic):
    """The log was cut back and somebody else wrote on, past our last offset: no number tells, only the record."""
    with Rig(cluster.bootstrap_servers, topic) as rig, Rig(cluster.bootstrap_servers, topic) as other:
        for _ in range(4):
            rig.send(1)
        cluster.stop_node(1)
        keep_batches(cluster.nodes[0].data / f"{topic}-0", 2, snapshots=False)
        cluster.start_node(1)
        other.send(10)
        rig.loss_monitor.check(topic, 0)

        assert "there is another record now" in found(rig, "acknowledged_lost").text


# what is done to the broker


def keep_batches(folder, count, *, snapshots):
    """Cut a stopped broker's log after `count` batches. Without its snapshots it knows no producers but those in it."""
    log = folder / f"{0:020d}.log"
    data, end = log.read_bytes(), 0
    for _ in range(count):
        end += 12 + struct.unpack_from(">i", data, end + 8)[0]
    log.write_bytes(data[:end])
    for file in folder.iterdir():
        if file.suffix in (".index", ".timeindex", ".snapshot"):
            file.unlink()


@contextlib.contextmanager
def forgetting(admin):
    """The broker drops what it knows of producers that were silent for a tenth of a second."""
    change(admin, AlterConfigOpType.SET, "100")
    yield
    change(admin, AlterConfigOpType.DELETE, None)


def change(admin, operation, value):
    entry = ConfigEntry("producer.id.expiration.ms", value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(LONG)


def known_producers(cluster, topic):
    """How many producers the broker knows on partition 0: DescribeProducers, which our client does not offer."""
    name = topic.encode()
    body = bytes([2, len(name) + 1]) + name + b"\x02" + struct.pack(">i", 0) + b"\x00\x00"
    request = struct.pack(">hhih", 61, 0, 7, -1) + b"\x00" + body
    host, port = cluster.nodes[0].direct_address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=LONG) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", receive(connection, 4))
        answer = receive(connection, size)
    # correlation id, tags, throttle, one topic: its name, one partition: its number, error, no message, producers
    at = 4 + 1 + 4 + 1 + 1 + len(name) + 1 + 4
    error, message, producers = struct.unpack_from(">hBB", answer, at)
    assert (error, message) == (0, 0), answer
    return producers - 1


def receive(connection, size):
    found = b""
    while len(found) < size:
        found += connection.recv(size - len(found)) or pytest.fail("the broker hung up")
    return found

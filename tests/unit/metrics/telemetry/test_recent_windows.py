"""A producer with telemetry: deliveries are not affected, and the published batches match the deliveries."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest
from confluent_kafka import Consumer

from producer_core import ReliableKafkaProducer
from producer_core.alerts import AlertLog
from producer_core.brokers import embedded
from producer_core.messages import id_text, record_id
from producer_core.metrics.ack_ledger import entries
from producer_core.metrics.telemetry import decode, recent_windows
from producer_core.store import Store
from producer_core.testing import InMemoryTransport
from tests.support import eventually


@pytest.fixture
def broker():
    with embedded.start(topics={"orders": 3, "telemetry": 1}) as started:
        yield started


def everything(broker, topic, enough):
    """Return all records of a topic, as soon as `enough(records)` is true."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    found = []
    try:
        consumer.subscribe([topic])

        def poll():
            found.extend(one for one in consumer.consume(500, 0.2) if one.error() is None)
            return enough(found)

        eventually(poll, 30)
    finally:
        consumer.close()
    return found


def merged(records):
    """Return each batch once, as a reader merges them."""
    return {(one.producer_id, one.sequence): one for one in (decode(record.value()) for record in records)}


def ledger_places(batches):
    """Return the partition and offset of each message id in the ledgers."""
    return {
        f"{row.session}-{seq}": (row.partition, offset)
        for one in batches.values()
        for row in one.ledger
        for seq, offset in entries(row)
    }


def counted(batches, topic="orders"):
    return sum(row.acknowledged for one in batches.values() for row in one.statistics if row.topic == topic)


def topic_places(broker, count):
    records = everything(broker, "orders", lambda found: len(found) >= count)
    return {id_text(record_id(one.headers())): (one.partition(), one.offset()) for one in records}


@pytest.mark.slow
def test_the_ledger_on_the_telemetry_topic_matches_the_log(broker, tmp_path):
    with ReliableKafkaProducer(broker.bootstrap_servers, store=tmp_path / "s.duckdb", telemetry_topic="telemetry") as producer:  # fmt: skip
        for number in range(3000):
            producer.send_message("orders", {"n": number}, key=str(number % 50))
        producer.send_message("orders", b"x" * 2_000_000)

    batches = merged(everything(broker, "telemetry", lambda found: counted(merged(found)) >= 3000))
    assert ledger_places(batches) == topic_places(broker, 3000)
    (row,) = [row for one in batches.values() for row in one.given_up]
    assert (row.session, row.seq, row.code, row.verdict) == (producer.identity, 3000, "MSG_SIZE_TOO_LARGE", "not_sent")  # fmt: skip
    assert sorted(sequence for _, sequence in batches) == list(range(len(batches)))
    with Store.open(tmp_path / "s.duckdb").borrow() as connection:
        # A ledger in the store is not enabled by default.
        assert connection.execute("SELECT count(*) FROM ledger").fetchone() == (0,)


@pytest.mark.slow
def test_telemetry_works_without_a_ledger(broker, tmp_path):
    with ReliableKafkaProducer(
        broker.bootstrap_servers, store=tmp_path / "s.duckdb", telemetry_topic="telemetry", ledger=False
    ) as producer:
        producer.send_message("orders", {"n": 1})
    batches = merged(everything(broker, "telemetry", lambda found: counted(merged(found)) >= 1))
    assert ledger_places(batches) == {} and counted(batches) == 1


@pytest.mark.slow
def test_producing_continues_while_the_telemetry_brokers_are_unavailable(broker, tmp_path):
    broker.down(broker.leader("telemetry"))
    producer = ReliableKafkaProducer(
        broker.bootstrap_servers, store=tmp_path / "s.duckdb", telemetry_topic="telemetry", ledger=True
    )
    for number in range(20_000):
        producer.send_message("orders", {"n": number}, key=str(number % 50))
    producer.flush(60)
    assert producer.get_basic_stats()["messages_sent"] == 20_000
    report = producer.close()

    assert (report.acknowledged, report.dead, report.lost) == (20_000, 0, 0)
    with Store.open(tmp_path / "s.duckdb").borrow() as connection:  # the producer's own store is complete
        assert connection.execute("SELECT sum(count) FROM ledger").fetchone() == (20_000,)
        assert connection.execute("SELECT sum(acknowledged) FROM statistics").fetchone() == (20_000,)


SENDS_AND_WAITS = """
import sys
from producer_core import ReliableKafkaProducer
servers, folder = sys.argv[1:]
producer = ReliableKafkaProducer(servers, store=f"{folder}/s.duckdb", journal_dir=f"{folder}/j", telemetry_topic="telemetry")
for number in range(2000):
    producer.send_message("orders", {"n": number}, key=str(number % 50))
producer.flush()
producer._components.dead_letter_backend.flush_soon()
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_with_a_journal_telemetry_windows_survive_kill_9(broker, tmp_path):
    leader = broker.leader("telemetry")
    broker.down(leader)
    child = subprocess.Popen(
        [sys.executable, "-c", SENDS_AND_WAITS, broker.bootstrap_servers, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"sent\n"
    child.kill()
    child.communicate()
    left = list((tmp_path / "j" / "telemetry").iterdir())
    broker.up(leader)
    with ReliableKafkaProducer(
        broker.bootstrap_servers,
        store=tmp_path / "s.duckdb",
        journal_dir=tmp_path / "j",
        telemetry_topic="telemetry",
    ) as producer:
        for number in range(500):
            producer.send_message("orders", {"n": number})

    batches = merged(everything(broker, "telemetry", lambda found: counted(merged(found)) >= 2500))
    owners = {owner for owner, _ in batches}  # each start has its own session
    assert left and len(owners) == 2 and producer.identity in owners
    assert (counted(batches), ledger_places(batches)) == (2500, topic_places(broker, 2500))
    for owner in owners:
        sequences = sorted(sequence for one, sequence in batches if one == owner)
        assert sequences == list(range(len(sequences)))
    with Store.open(tmp_path / "s.duckdb").borrow() as connection:
        assert connection.execute("SELECT sum(acknowledged) FROM statistics").fetchone() == (2500,)


@pytest.mark.slow
def test_an_alert_with_the_topic_fires_while_most_windows_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(recent_windows, "_MIN_WINDOWS", 2)
    monkeypatch.setattr(recent_windows, "_GRACE", -1.0)
    producer = ReliableKafkaProducer(
        "127.0.0.1:1",
        store=tmp_path / "s.duckdb",
        telemetry_topic="fleet",
        transport=InMemoryTransport.factory(),
    )
    log = AlertLog(Store.open(tmp_path / "s.duckdb"))

    def firing():
        producer._components.dead_letter_backend.flush_soon()
        return [row for row in log.list() if row.rule == "telemetry_failing" and row.state == "firing"]

    (alert,) = eventually(firing)
    assert "Telemetry delivery to fleet failed for" in alert.text and alert.subject == producer.identity
    producer.close()

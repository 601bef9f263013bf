"""The telemetry pipeline: real Spark reads a real Kafka into a real store."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

import duckdb
import pytest
from confluent_kafka import Producer

from producer_core import ReliableKafkaProducer
from producer_core.store import Batch, LatencyRow, StatisticsRow, Store
from producer_core.telemetry import SCHEMA_VERSION, decode, encode
from tests.support import eventually

pytestmark = pytest.mark.spark


def batch(producer, sequence, sent=10, topic="orders"):
    where = (1_700_000_000 + sequence, "c", producer)
    return Batch(
        producer,
        sequence,
        statistics=(StatisticsRow(*where, topic, sent, sent, 0, 0, 0, 0, 0, 0, 100 * sent, 0.5),),
        latencies=(LatencyRow(*where, topic, 42, sent),),
    )


def publish(kafka, topic, values):
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        client.produce(topic, value)
    assert client.flush(20) == 0


def job(kafka, topic, store, *more):
    command = [
        sys.executable,
        "-m",
        "producer_core.cli",
        "pipeline",
        "telemetry",
        "--topic",
        topic,
        "--once",
        "--json",
    ]
    command += ["-b", kafka.bootstrap_servers, "--store", str(store), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def totals(path):
    store = Store.open(path, create=False)
    with store.borrow() as connection:
        sums = connection.execute("SELECT sum(acknowledged), sum(bytes) FROM statistics").fetchone()
        counts = connection.execute("SELECT sum(count) FROM latencies").fetchone()
        ranges = connection.execute("SELECT * FROM merged_batches ORDER BY ALL").fetchall()
    store.close()
    return (*sums, *counts), ranges


def client_side(path):
    """What librdkafka said, as the latency page asks for it."""
    store = Store.open(path, create=False)
    found = store.rows("client_series", bucket=60), store.rows("broker_series", bucket=60)
    store.close()
    return found


def kept(folder, column="acknowledged"):
    """The sum of a column over the Parquet history, as any reader would read it."""
    ((total,),) = duckdb.sql(f"SELECT sum({column}) FROM read_parquet('{folder}/**/*.parquet')").fetchall()
    return total


def test_a_batch_survives_its_way_through_kafka():
    original = batch("p1", 3)
    assert decode(encode(original)) == original


def test_a_batch_counts_once_however_often_it_comes(kafka, tmp_path):
    topic, path = f"telemetry-{uuid.uuid4().hex[:8]}", tmp_path / "fleet.duckdb"
    kafka.create_topic(topic, partitions=2)
    batches = [batch(producer, sequence) for producer in ("p1", "p2", "p3") for sequence in range(20)]
    values = [encode(item) for item in batches] + [encode(item) for item in batches[:7]]
    newer = json.dumps({"v": SCHEMA_VERSION + 1, "producer_id": "p1", "sequence": 99}).encode()
    wrong_type = encode(batch("p1", 30)).replace(b'"orders",10', b'"orders","many"')
    short_row = encode(batch("p1", 31)).replace(b",1000,0.5", b"")
    broken = [newer, b"not JSON", wrong_type, short_row]
    publish(kafka, topic, [*values, *broken])

    first = job(kafka, topic, path, "--history", str(tmp_path / "history"))
    again = job(kafka, topic, path)
    publish(kafka, topic, [encode(batch("p1", 21)), encode(batch("p1", 20)), values[0]])
    late = job(kafka, topic, path)
    publish(kafka, topic, values[:3])
    lost_checkpoint = job(kafka, topic, path, "--checkpoint", str(tmp_path / "another"))

    assert (first["merged"], first["set_aside"]) == (60, 4)
    assert again == {"batches": 0, "merged": 0, "set_aside": 0}
    assert late["merged"] == 2
    assert lost_checkpoint["merged"] == 0
    assert totals(path) == ((620, 62_000, 620), [("p1", 0, 21), ("p2", 0, 19), ("p3", 0, 19)])
    assert kept(tmp_path / "history" / "statistics") == 600
    assert kept(tmp_path / "history" / "latencies", "count") == 600


def test_what_a_producer_publishes_equals_what_it_wrote_down(kafka, tmp_path):
    topic, orders = f"telemetry-{uuid.uuid4().hex[:8]}", f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1)
    kafka.create_topic(orders, partitions=2)
    with ReliableKafkaProducer(
        kafka.bootstrap_servers, store=tmp_path / "own.duckdb", telemetry_topic=topic
    ) as producer:
        for number in range(2_000):
            producer.send_message(orders, {"n": number})
        producer.flush(30)
        # the client tells of its brokers once a second
        eventually(lambda: any(row["rtt_count"] for row in client_side(tmp_path / "own.duckdb")[1]))

    job(kafka, topic, tmp_path / "fleet.duckdb")

    own, fleet = totals(tmp_path / "own.duckdb"), totals(tmp_path / "fleet.duckdb")
    assert own[0] == fleet[0]
    assert own[0][0] == 2_000
    assert client_side(tmp_path / "own.duckdb") == client_side(tmp_path / "fleet.duckdb")
    assert sum(row["rtt_count"] for row in client_side(tmp_path / "own.duckdb")[1]) > 0


def test_no_broker_and_no_topic_are_told_before_spark_starts(kafka, tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "producer_core.cli", "pipeline", "telemetry", "--once", *arguments]
        return subprocess.run(
            [*command, "--store", str(tmp_path / "s.duckdb")], capture_output=True, text=True, timeout=60
        )

    away = run("--topic", "t", "-b", "127.0.0.1:1")
    missing = run("--topic", "no/such topic", "-b", kafka.bootstrap_servers)

    assert (away.returncode, missing.returncode) == (2, 2)
    assert "127.0.0.1:1" in away.stderr
    assert "topic" in missing.stderr

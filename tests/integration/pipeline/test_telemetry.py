"""The telemetry job with a real Spark, Kafka and store."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid

import duckdb
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from producer_core import ReliableKafkaProducer
from producer_core.cli import main
from producer_core.metrics.telemetry import SCHEMA_VERSION, decode, encode
from producer_core.pipeline import sink, telemetry
from producer_core.pipeline.merge_batch import missing
from producer_core.pipeline.progress import show_progress
from producer_core.pipeline.slices import pieces
from producer_core.pipeline.spark_master import default_master
from producer_core.store import Batch, LatencyRow, StatisticsRow, Store
from tests.scenarios.pipelines.fleet import POINTS, Fleet, difference, found, found_in_history
from tests.scenarios.pipelines.fleet import publish as publish_fleet
from tests.support import ROOT, eventually

pytestmark = pytest.mark.spark

NOW = int(time.time())


def batch(producer, sequence, sent=10, topic="orders", **changes):
    where = (NOW + sequence, "c", producer)
    return Batch(
        producer,
        sequence,
        statistics=(StatisticsRow(*where, topic, sent, sent, 0, 0, 0, 0, 0, 0, 100 * sent, 0.5),),
        latencies=(LatencyRow(*where, topic, 42, sent),),
        **changes,
    )


def publish(kafka, topic, values):
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        client.produce(topic, value)
    assert client.flush(20) == 0


@pytest.fixture
def topic(kafka):
    name = f"telemetry-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2)
    return name


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def run(spark, kafka, topic, store):
    def run_once(**choices):
        return telemetry.run(
            spark, store, servers=kafka.bootstrap_servers, topics=[topic], once=True, **choices
        )

    return run_once


def totals(store):
    with store.borrow() as connection:
        sums = connection.execute("SELECT sum(acknowledged), sum(bytes) FROM statistics").fetchone()
        counts = connection.execute("SELECT sum(count) FROM latencies").fetchone()
        ranges = connection.execute("SELECT * FROM merged_batches ORDER BY ALL").fetchall()
    return (*sums, *counts), ranges


def client_side(store):
    """Return librdkafka's statistics as the latency page queries them."""
    return store.rows("client_series", bucket=60), store.rows("broker_series", bucket=60)


def kept(folder, column="acknowledged"):
    """Return the sum of a column over the Parquet history, as any reader would compute it."""
    ((total,),) = duckdb.sql(f"SELECT sum({column}) FROM read_parquet('{folder}/**/*.parquet')").fetchall()
    return total


def test_a_batch_is_unchanged_by_encoding_and_decoding():
    original = batch("p1", 3)
    assert decode(encode(original)) == original


def test_a_repeated_batch_counts_once(kafka, topic, store, run, tmp_path, monkeypatch):
    batches = [batch(producer, sequence) for producer in ("p1", "p2", "p3") for sequence in range(20)]
    values = [encode(item) for item in batches] + [encode(item) for item in batches[:7]]
    newer = json.dumps({"v": SCHEMA_VERSION + 1, "producer_id": "p1", "sequence": 99}).encode()
    wrong_type = encode(batch("p1", 30)).replace(b'"orders",10', b'"orders","many"')
    too_large = encode(batch("p1", 32)).replace(b'"orders",42', b'"orders",4200000000')
    short_row = encode(batch("p1", 31)).replace(b",1000,0.5", b"")
    broken = [newer, b"not JSON", wrong_type, short_row, too_large]
    publish(kafka, topic, [*values, *broken])

    with monkeypatch.context() as small:  # more than the driver may hold at once
        small.setattr(sink, "pieces", functools.partial(pieces, most=6_000))
        first = run(history=tmp_path / "history")
    again = run()
    publish(kafka, topic, [encode(batch("p1", 24, first=22)), encode(batch("p1", 20)), values[0]])
    late = run()
    publish(kafka, topic, values[:3])
    lost_checkpoint = run(checkpoint=tmp_path / "another")

    assert (first.merged, first.set_aside) == (60, 5)
    assert first.versions == {SCHEMA_VERSION + 1: 1, SCHEMA_VERSION: 3, None: 1}
    assert (again.batches, again.merged, again.set_aside) == (0, 0, 0)
    assert late.merged == 2
    assert lost_checkpoint.merged == 0
    assert totals(store) == (
        (620, 62_000, 620),
        [("p1", 0, 20), ("p1", 22, 24), ("p2", 0, 19), ("p3", 0, 19)],
    )
    assert missing(store) == (1, 1)
    assert kept(tmp_path / "history" / "statistics") == 600
    assert kept(tmp_path / "history" / "latencies", "count") == 600
    aside = duckdb.sql(
        f"SELECT value FROM read_parquet('{store.path}.telemetry/set_aside/*.parquet')"
    ).fetchall()
    assert sorted(bytes(value) for (value,) in aside) == sorted(broken)


def test_a_large_micro_batch_is_split_into_pieces_with_each_record_once(spark, kafka, topic):
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    sizes = [1_000] * 20 + [9_000, None, 300_000] + [1_000] * 20
    for number, size in enumerate(sizes):
        value = None if size is None else bytes([number]) * size
        client.produce(topic, value, str(number), partition=number % 2)
    assert client.flush(20) == 0
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    records = spark.read.format("kafka").options(**options).option("subscribe", topic).load()

    def split(most):
        return [
            [(int(bytes(key)), value) for key, value in zip(*(piece[name].to_pylist() for name in ("key", "value")), strict=True)]
            for piece, last in pieces(records, options, most=most)
        ]  # fmt: skip

    for most, least in ((10_000_000, 1), (40_000, 3), (6_000, 10)):
        parts = split(most)
        every = sorted((key, value) for part in parts for key, value in part)
        assert every == [
            (number, None if size is None else bytes([number]) * size) for number, size in enumerate(sizes)
        ]
        assert len(parts) >= least
        for part in parts:
            assert len(part) == 1 or sum(len(value or b"") for _, value in part) <= 2 * most
    assert [last for _, last in pieces(records, options, most=40_000)].index(True) == len(split(40_000)) - 1


def test_published_telemetry_matches_the_producers_own_store(kafka, topic, store, run, tmp_path):
    orders = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(orders, partitions=2)
    own = Store.open(tmp_path / "own.duckdb")
    with ReliableKafkaProducer(
        kafka.bootstrap_servers, store=tmp_path / "own.duckdb", telemetry_topic=topic
    ) as producer:
        for number in range(2_000):
            producer.send_message(orders, {"n": number})
        producer.flush(30)
        # the client reports on its brokers once a second
        eventually(lambda: any(row["rtt_count"] for row in client_side(own)[1]))

    run()

    assert totals(own)[0] == totals(store)[0]
    assert totals(own)[0][0] == 2_000
    assert client_side(own) == client_side(store)
    own.close()


class Broken(Exception):
    """Ends a run at a named point."""


def test_runs_that_end_at_every_point_are_continued_without_loss(kafka, topic, store, run, tmp_path):
    fleet = Fleet(producers=2, seconds=90, now=time.time(), seed=1, late=0.2, unreadable=3)
    each = len(fleet.records) // len(POINTS)
    for number, point in enumerate(POINTS):
        rest = number == len(POINTS) - 1
        part = fleet.records[number * each : None if rest else (number + 1) * each]
        publish_fleet(kafka.bootstrap_servers, topic, part)

        def broken(reached, point=point):
            if reached == point:
                raise Broken(point)

        with pytest.raises(Broken):  # the next run continues where this one stopped
            run(history=tmp_path / "history", reached=broken)
    run(history=tmp_path / "history")

    with store.borrow(limit=30) as connection:
        assert difference(found(connection), fleet.truth) == ""
        assert difference(found_in_history(connection, tmp_path / "history"), fleet.truth) == ""
    assert missing(store) == (0, 0)


def test_a_driver_killed_after_its_transaction_and_before_the_checkpoint_counts_nothing_twice(
    kafka, topic, store, run, tmp_path
):
    fleet = Fleet(producers=3, seconds=10, now=time.time(), seed=1)
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records)
    settings = {
        "servers": kafka.bootstrap_servers, "topics": [topic], "store": str(store.path), "once": True,
        "history": str(tmp_path / "history"), "die": {"point": "merged", "after": 1}, "master": "local[1,4]",
    }  # fmt: skip
    driver = subprocess.run(
        [sys.executable, "-m", "tests.scenarios.pipelines.telemetry_driver", json.dumps(settings)],
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert driver.returncode == -signal.SIGKILL, driver.stderr

    rest = run(history=tmp_path / "history")

    assert rest.merged == 0
    with store.borrow() as connection:
        assert difference(found(connection), fleet.truth) == ""
        assert difference(found_in_history(connection, tmp_path / "history"), fleet.truth) == ""


def test_a_job_runs_until_sigterm_and_has_a_row_in_the_store(kafka, topic, store, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    publish(kafka, topic, [encode(batch("p1", 0))])
    command = [sys.executable, "-m", "producer_core.cli", "pipeline", "telemetry", "--topic", topic, "--json"]
    command += ["-b", kafka.bootstrap_servers, "--store", str(store.path)]
    outside = {**os.environ, "PYTHONPATH": str(ROOT)}
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here, env=outside
    )
    try:
        eventually(lambda: totals(store)[0][0] == 10, 200)
        publish(kafka, topic, [encode(batch("p1", 1))])
        eventually(lambda: totals(store)[0][0] == 20)
        eventually(lambda: store.rows("jobs")[0]["records_done"] == 2)
        assert not list(here.iterdir())  # Spark creates nothing there, so the folder may be read-only
        (seen,) = store.rows("jobs")
        job.send_signal(signal.SIGTERM)
        output, errors = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()

    assert job.returncode == 0, errors
    assert json.loads(output) == {"batches": 2, "merged": 2, "set_aside": 0, "missing": 0}
    assert errors.splitlines()[0] == f"Starting Spark on {default_master()} …"
    assert all(
        line.startswith(("Starting Spark", "no batches yet", "merged ")) for line in errors.splitlines()
    ), errors
    assert (seen["state"], seen["kind"], seen["pid"]) == ("running", "telemetry", job.pid)
    assert store.rows("jobs")[0]["state"] == "done"


def test_a_streams_lag_comes_from_its_own_progress():
    class Source:
        startOffset = None
        endOffset = '{"t":{"0":5,"1":7},"u":{"0":1}}'
        latestOffset = '{"t":{"0":9,"1":7},"u":{"0":2},"v":{"0":3}}'

    class Progress:
        sources = (Source(),)

    assert telemetry.behind(None) is None
    assert telemetry.behind(Progress()) == 4 + 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_batch_job_shows_a_progress_bar_and_removes_it(spark):
    shares, terminal, file = [], Terminal(), io.StringIO()

    with show_progress(spark, "counting", records=4_000_000, stream=terminal, on_share=shares.append):
        hashes = spark.range(4_000_000, numPartitions=8).selectExpr("sha2(cast(id as string), 256) as hash")
        eventually(lambda: (hashes.where("hash like 'a%'").count(), shares)[1])
    with show_progress(spark, "counting", stream=file):
        spark.range(10).count()

    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    assert shares[-1] == 1  # even when the last update came before the last task
    assert "counting: " in terminal.getvalue()
    assert "of 4,000,000 records" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")
    assert file.getvalue() == ""
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


# errors before Spark starts


@pytest.fixture
def ask(kafka, topic, tmp_path):
    """Return a function that runs the command, which must fail and create nothing."""

    def asked(*arguments, servers=kafka.bootstrap_servers, topic=topic):
        command = ["pipeline", "telemetry", "--once", "--topic", topic, "-b", servers]
        path = tmp_path / "asked" / "s.duckdb"
        result = CliRunner().invoke(main, [*command, "--store", str(path), *map(str, arguments)])
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
        assert not path.exists()
        return result.output

    return asked


def test_errors_are_reported_before_spark_starts(ask, tmp_path, topic, monkeypatch):
    assert "No broker responded at 127.0.0.1:1" in ask(servers="127.0.0.1:1")
    assert "Topic 'no-such-topic' does not exist" in ask(topic="no-such-topic")
    assert f"Did you mean '{topic}'?" in ask(topic=topic[:-1])
    assert "'lokal[2]' is not a Spark master" in ask("--master", "lokal[2]")
    assert "No Spark master responded at spark://127.0.0.1:1" in ask("--master", "spark://127.0.0.1:1")
    (tmp_path / "jars").mkdir()
    assert "--jars does not include spark-sql-kafka" in ask("--jars", tmp_path / "jars")
    offsets = tmp_path / "checkpoint" / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{")
    assert "is damaged: spark/offsets/0 is not JSON" in ask("--checkpoint", tmp_path / "checkpoint")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "Apache Spark needs Java 17 or newer; none was found" in ask()


def test_fetching_the_connector_from_a_silent_repository_fails_within_seconds(tmp_path):
    """A repository that accepts connections and sends nothing simulates a firewall that drops packets."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            **os.environ, "XDG_CACHE_HOME": str(tmp_path),
            "DEFAULT_ARTIFACT_REPOSITORY": f"http://127.0.0.1:{silent.getsockname()[1]}/",
        }  # fmt: skip
        command = [sys.executable, "-m", "producer_core.cli", "pipeline", "fetch", "--timeout", "8"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    assert done.returncode == 2
    assert re.search(r"could not be fetched: .*\n  Check the network, or copy the jars", done.stderr), (
        done.stderr
    )

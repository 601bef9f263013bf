"""Telemetry is collected without Spark, from a real Kafka into a real store."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid

import duckdb
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from producer_core import ReliableKafkaProducer
from producer_core.errors import BrokerError, ConfigError, PipelineError, StoreLocked
from producer_core.pipeline import collect as module
from producer_core.pipeline import telemetry_reader
from producer_core.pipeline.collect import collect
from producer_core.pipeline.merge_batch import missing
from producer_core.store import Store
from tests.scenarios.pipelines.fleet import Fleet, difference, found, found_in_history
from tests.scenarios.pipelines.fleet import publish as publish_fleet
from tests.support import ROOT, eventually

pytestmark = pytest.mark.kafka

STEPS = ("drafted", "in the transaction", "merged", "kept")


@pytest.fixture
def topic(kafka):
    name = f"collect-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    return name


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def run(kafka, topic, store):
    def run_once(into=store, **choices):
        return collect(into, servers=kafka.bootstrap_servers, topics=[topic], once=True, **choices)

    return run_once


def difference_to(store, truth):
    with store.borrow() as connection:
        return difference(found(connection), truth)


def test_every_batch_of_a_fleet_counts_once_and_the_next_run_continues(kafka, topic, store, run, tmp_path):
    fleet = Fleet(producers=20, seconds=30, now=time.time(), seed=2)
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records)

    first = run(history=tmp_path / "history")
    again = run(history=tmp_path / "history")
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records[:50])
    repeated = run(history=tmp_path / "history")

    assert (first.merged, first.set_aside) == (fleet.truth.batches, fleet.truth.unreadable)
    assert (again.batches, again.set_aside) == (0, 0)
    assert repeated.merged == 0 and repeated.batches + repeated.set_aside == 50
    assert difference_to(store, fleet.truth) == ""
    assert missing(store) == (0, 0)
    with store.borrow() as connection:
        assert difference(found_in_history(connection, tmp_path / "history"), fleet.truth) == ""
    aside = f"read_parquet('{store.path}.collect-set-aside/*.parquet')"
    distinct = duckdb.sql(f'SELECT count(DISTINCT (topic, partition, "offset")) FROM {aside}').fetchall()
    assert distinct[0][0] == fleet.truth.unreadable + repeated.set_aside


def test_a_collector_that_is_killed_at_any_step_counts_nothing_twice_and_loses_nothing(
    kafka, topic, store, run, tmp_path, monkeypatch
):
    """Small pieces, so that kills hit the first, a middle and the last one."""
    fleet = Fleet(producers=5, seconds=60, now=time.time(), seed=3)
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records)
    settings = {
        "servers": kafka.bootstrap_servers, "topics": [topic], "store": str(store.path), "every": 0.05,
        "history": str(tmp_path / "history"),
    }  # fmt: skip
    store.close()
    chance = random.Random(4)
    for step in STEPS:
        die = {"point": step, "after": chance.randrange(1, 3)}
        driver = subprocess.run(
            [sys.executable, "-m", "tests.scenarios.pipelines.collect_driver", json.dumps({**settings, "die": die})],
            capture_output=True, text=True, timeout=120, cwd=ROOT,
        )  # fmt: skip
        assert driver.returncode in (-signal.SIGKILL, 0), driver.stderr
        assert difference_to(Store.open(store.path), fleet.truth) != "" or driver.returncode == 0

    rest = Store.open(store.path)
    run(rest, history=tmp_path / "history")
    assert difference_to(rest, fleet.truth) == ""
    with rest.borrow() as connection:
        assert difference(found_in_history(connection, tmp_path / "history"), fleet.truth) == ""
    rest.close()


def test_a_copy_of_the_store_that_is_put_back_reads_again_what_it_lacks(kafka, topic, store, run, tmp_path):
    fleet = Fleet(producers=4, seconds=20, now=time.time(), seed=5, unreadable=0)
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records[:40])
    run()
    store.close()
    shutil.copy(store.path, tmp_path / "copy.duckdb")
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records[40:])
    run(later := Store.open(store.path))
    later.close()
    shutil.copy(tmp_path / "copy.duckdb", store.path)

    restored = Store.open(store.path)
    run(restored)
    assert difference_to(restored, fleet.truth) == ""
    restored.close()


def test_a_topic_that_is_created_again_is_read_from_its_beginning(kafka, topic, store, run):
    fleet = Fleet(producers=4, seconds=20, now=time.time(), seed=6, unreadable=0)
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records[:60])
    run()
    kafka.delete_topic(topic)
    kafka.create_topic(topic, partitions=1)
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records[60:])
    run()
    assert difference_to(store, fleet.truth) == ""


def test_once_ends_when_the_topic_is_created_again_with_fewer_records(kafka, topic, store, run, monkeypatch):
    monkeypatch.setattr(module, "_CHECK_S", 0.0)
    monkeypatch.setattr(telemetry_reader, "_PIECE_RECORDS", 1)
    monkeypatch.setattr(telemetry_reader, "_CONSUME", 1)
    fleet = Fleet(producers=4, seconds=20, now=time.time(), seed=10, unreadable=0)
    created_again = []

    def create_again(state):
        if not created_again:
            kafka.delete_topic(topic)
            kafka.create_topic(topic, partitions=3)
            publish_fleet(kafka.bootstrap_servers, topic, fleet.records[60:63])
            created_again.append(state.done.merged)

    publish_fleet(kafka.bootstrap_servers, topic, fleet.records[:60])
    done = run(on_progress=create_again, every=0.2)
    assert created_again == [1] and done.merged == 4


def test_a_running_collector_waits_for_a_topic_that_is_deleted_until_it_is_created_again(
    kafka, topic, store, monkeypatch
):
    monkeypatch.setattr(module, "_CHECK_S", 0.0)
    monkeypatch.setattr(module, "_RETRY", (0.1, 0.1))
    fleet = Fleet(producers=4, seconds=20, now=time.time(), seed=11, unreadable=0)
    ended, steps = threading.Event(), ["collect"]

    def progress(state):
        if steps[-1] == "collect" and state.done.batches == 60:
            kafka.delete_topic(topic)
            steps.append("deleted")
        elif steps[-1] == "deleted" and "does not exist" in state.trouble:
            kafka.create_topic(topic, partitions=1)
            publish_fleet(kafka.bootstrap_servers, topic, fleet.records[60:])
            steps.append("created again")
        elif state.done.batches == len(fleet.records):
            ended.set()

    publish_fleet(kafka.bootstrap_servers, topic, fleet.records[:60])
    collect(
        store, servers=kafka.bootstrap_servers, topics=[topic], every=0.1, on_progress=progress, stopped=ended.is_set
    )  # fmt: skip
    assert steps == ["collect", "deleted", "created again"]
    assert difference_to(store, fleet.truth) == ""


def test_a_partition_without_leader_does_not_keep_the_others_from_being_collected(kafka3, store, monkeypatch):
    monkeypatch.setattr(module, "_CHECK_S", 0.5)
    topic = f"collect-{uuid.uuid4().hex[:8]}"
    kafka3.create_topic(topic, partitions=3, replicas=1)
    described = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers}).list_topics(topic).topics[topic]
    leaders = {number: one.leader for number, one in described.partitions.items()}
    lost = leaders[0]
    left = [number for number, leader in leaders.items() if leader != lost]
    fleet = Fleet(producers=4, seconds=5, now=time.time(), seed=12, unreadable=0)
    ended, states = threading.Event(), []
    job = threading.Thread(
        target=collect, args=(store,),
        kwargs={"servers": kafka3.bootstrap_servers, "topics": [topic], "every": 0.1, "stopped": ended.is_set,
                "on_progress": states.append},
    )  # fmt: skip
    job.start()
    try:
        eventually(lambda: states)
        kafka3.stop_node(lost)
        client = Producer({"bootstrap.servers": kafka3.bootstrap_servers})
        for number, (name, value) in enumerate(fleet.records):
            client.produce(topic, value, name.encode(), partition=left[number % len(left)])
        assert client.flush(60) == 0
        eventually(lambda: difference_to(store, fleet.truth) == "")
    finally:
        ended.set()
        job.join(60)
        kafka3.start_node(lost)
    assert not job.is_alive()


def test_new_partitions_are_read_while_the_collector_runs(kafka, topic, store, monkeypatch):
    monkeypatch.setattr(module, "_CHECK_S", 0.5)
    ended, states = threading.Event(), []
    job = threading.Thread(
        target=collect, args=(store,),
        kwargs={"servers": kafka.bootstrap_servers, "topics": [topic], "every": 0.1, "stopped": ended.is_set,
                "on_progress": states.append},
    )  # fmt: skip
    fleet = Fleet(producers=30, seconds=4, now=time.time(), seed=7, unreadable=0)
    job.start()
    try:
        eventually(lambda: states)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 9)])[topic].result(20)
        publish_fleet(kafka.bootstrap_servers, topic, fleet.records)
        eventually(lambda: difference_to(store, fleet.truth) == "")
        eventually(lambda: states[-1].behind == 0)
    finally:
        ended.set()
        job.join(60)
    assert not job.is_alive() and states[-1].trouble == ""
    (row,) = store.rows("jobs")
    assert (row["kind"], row["state"], row["records_done"]) == ("telemetry", "done", len(fleet.records))


def test_the_collector_waits_for_a_store_that_is_in_use_and_loses_no_record(kafka, topic, store, monkeypatch):
    fleet = Fleet(producers=5, seconds=10, now=time.time(), seed=8, unreadable=0)
    publish_fleet(kafka.bootstrap_servers, topic, fleet.records)
    monkeypatch.setattr(module, "_RETRY", (0.1, 0.1))
    refused, ended, states = iter(range(3)), threading.Event(), []

    def reached(point):
        if point == "in the transaction" and next(refused, None) is not None:
            raise StoreLocked("in use")

    job = threading.Thread(
        target=collect, args=(store,),
        kwargs={"servers": kafka.bootstrap_servers, "topics": [topic], "every": 0.1, "stopped": ended.is_set,
                "on_progress": states.append, "reached": reached},
    )  # fmt: skip
    job.start()
    try:
        eventually(lambda: difference_to(store, fleet.truth) == "")
        eventually(lambda: not states[-1].trouble)
    finally:
        ended.set()
        job.join(60)
    assert sum("in use" in state.trouble for state in states) == 3


def test_one_collector_uses_a_store_at_a_time(kafka, topic, store, run):
    def second(point):
        with pytest.raises(PipelineError, match="Another job is using telemetry collect"):
            run()
        seen.append(point)

    seen = []
    publish_fleet(
        kafka.bootstrap_servers, topic, Fleet(producers=1, seconds=1, now=1e9, seed=9, late=0).records
    )
    run(reached=second)
    assert seen == list(STEPS)


def test_another_topic_than_telemetry_and_a_missing_one_are_refused(kafka, topic, store, run):
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(150):
        client.produce(topic, b"order %d" % number)
    assert client.flush(20) == 0
    with pytest.raises(ConfigError, match="is telemetry"):
        run()
    assert not store.path.with_name(f"{store.path.name}.collect-set-aside").exists()
    with pytest.raises(BrokerError, match="does not exist"):
        collect(store, servers=kafka.bootstrap_servers, topics=["no-such-topic"], once=True)


def test_the_command_collects_what_real_producers_publish_without_spark_until_sigterm(
    kafka, topic, store, tmp_path
):
    """The same counts are in the producer's own store. PySpark cannot be imported."""
    blocked = tmp_path / "blocked"
    for name in ("pyspark", "py4j"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text("raise ImportError('blocked')")
    command = [sys.executable, "-m", "producer_core.cli", "telemetry", "collect", "--topic", topic, "--json"]
    command += ["-b", kafka.bootstrap_servers, "--store", str(store.path)]
    environment = {**os.environ, "PYTHONPATH": f"{blocked}:{ROOT}"}
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    orders = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(orders)
    try:
        own = Store.open(tmp_path / "own.duckdb")
        with ReliableKafkaProducer(kafka.bootstrap_servers, store=own, telemetry_topic=topic) as producer:
            for number in range(500):
                producer.send_message(orders, {"number": number})
            producer.flush()
        eventually(lambda: [row["acknowledged"] for row in store.rows("totals")] == [500])
        job.send_signal(signal.SIGTERM)
        output, errors = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, errors
    counted = json.loads(output)
    assert counted["set_aside"] == counted["missing"] == 0 and counted["merged"] == counted["batches"] > 0
    assert own.rows("totals") == store.rows("totals")
    assert [row["closed_at"] is not None for row in store.rows("producers", since=0)] == [True]

"""The audit of a real topic on a real Kafka by a real Spark: transactions, retention, marks, and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from producer_core import ReliableKafkaProducer
from producer_core.config import client_config
from producer_core.errors import BrokerError, ConfigError, PipelineError
from producer_core.messages import id_bytes
from producer_core.pipeline import audit
from producer_core.pipeline.integrity import topic_bounds
from producer_core.pipeline.integrity.confirm_losses import confirm
from producer_core.pipeline.integrity.groups import groups
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.spans import OffsetSpan, PartitionBounds
from producer_core.store import Store
from tests import planting
from tests.services.test_integrity_sql import KINDS, SMALL, acked, batch, interpreted  # noqa: F401  a fixture
from tests.support import eventually

pytestmark = pytest.mark.spark


def topic(kafka, partitions=1, **more):
    name = f"t-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=partitions, **more)
    return name


@pytest.fixture(scope="module")
def planted(kafka):
    """A topic with every fault, its ledger's topic, and the plan. Its open transaction lives as long."""
    plan = planting.plant(12_000, seed=4, partitions=3)
    orders, telemetry = topic(kafka, 3), topic(kafka, 2)
    cluster = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics().cluster_id
    holding = planting.write(plan, kafka.bootstrap_servers, orders, telemetry, cluster)
    yield plan, orders, telemetry
    holding.abort_transaction(30)


def found(kafka, spark, name, ledger=(), **more):
    return audit(spark, name, bootstrap_servers=kafka.bootstrap_servers, ledger_topics=ledger, **more)


def send(kafka, name, session, seqs, partition=0, timestamp=None):
    """Plain records with ids, in this order; their offsets."""
    offsets = []
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for seq in seqs:
        client.produce(
            name, b"x", key=str(seq).encode(), partition=partition, headers=[("pc-id", id_bytes(session, seq))],
            on_delivery=lambda error, message: offsets.append(message.offset()),
            **({"timestamp": int(timestamp * 1000)} if timestamp else {}),
        )  # fmt: skip
    assert client.flush(30) == 0
    return offsets


def tell(kafka, ledger, producer, number, name, session, *places):
    """One batch of a ledger, of any cluster."""
    value = batch(producer, number, acked(session, *places, topic=name), cluster_id="")
    planting.publish(kafka.bootstrap_servers, ledger, [(producer.encode(), value)])


def test_the_command_finds_every_fault_by_its_id_and_says_it_in_json_and_its_exit_code(
    planted, kafka, tmp_path
):
    plan, orders, telemetry = planted
    wanted = planting.truth(plan)
    command = [
        sys.executable,
        "-m",
        "producer_core.cli",
        "pipeline",
        "integrity",
        "--topic",
        orders,
        "--json",
    ]
    command += ["--ledger-topic", telemetry, "-b", kafka.bootstrap_servers, "--fail-on", "lost,duplicated"]
    command += ["--store", str(tmp_path / "s.duckdb"), "--html", str(tmp_path / "report.html")]
    command += ["--findings", str(tmp_path / "found")]

    command += [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
    quick = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}  # its JVM has no time to get warm

    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=quick)

    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    steps = [line.partition(f"auditing {orders}: ")[2] for line in done.stderr.splitlines()]
    steps = [
        step.split()[0] for step in steps if step[:1].islower()
    ]  # without the share that is read, now and then
    assert steps == ["reading", "reading", "comparing", "reading", "comparing", "done"]
    numbers = ("records", "foreign", "acknowledged", "expired")
    assert {name: told[name] for name in numbers} == {name: wanted[name] for name in numbers}
    kept = duckdb.sql(f"SELECT kind, message_id FROM '{told['findings_path']}/*.parquet'").fetchall()
    ids = {kind: plan.codes({each for one, each in kept if one == kind}) for kind in KINDS}
    assert ids == {kind: wanted[kind] for kind in KINDS}
    assert {kind: told[kind] for kind in KINDS} == {kind: len(wanted[kind]) for kind in KINDS}
    assert [str(folder) for folder in (tmp_path / "found").iterdir()] == [told["findings_path"]]
    assert told["sentence"] in (tmp_path / "report.html").read_text()
    with Store.open(tmp_path / "s.duckdb").borrow() as connection:
        audits = connection.execute("SELECT state, lost, foreign_records, undecided FROM audits").fetchall()
        jobs = connection.execute("SELECT kind, state FROM pipeline_jobs").fetchall()
        named = connection.execute("SELECT count(*) FROM audit_findings WHERE kind = 'lost'").fetchone()
    assert audits == [("done", len(wanted["lost"]), wanted["foreign"], 0)]
    assert (jobs, named) == ([("integrity", "done")], (len(wanted["lost"]),))


def test_a_topic_that_is_not_there_is_told_before_spark_starts(kafka, tmp_path):
    command = [sys.executable, "-m", "producer_core.cli", "pipeline", "integrity", "--topic", "nothing-there"]
    command += ["-b", kafka.bootstrap_servers, "--store", str(tmp_path / "s.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "nothing-there" in done.stderr
    assert "Spark" not in done.stderr


def test_a_partition_that_the_topic_does_not_have_is_told_before_spark_starts(kafka, tmp_path):
    command = [sys.executable, "-m", "producer_core.cli", "pipeline", "integrity", "--topic", topic(kafka, 2)]
    command += [
        "-b",
        kafka.bootstrap_servers,
        "--store",
        str(tmp_path / "s.duckdb"),
        "--from-offsets",
        '{"2": 5}',
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "has no partition 2; it has 2, from 0" in done.stderr
    assert "Spark" not in done.stderr
    assert not (tmp_path / "s.duckdb").exists()


def test_a_topic_of_data_is_no_ledger(kafka, spark):
    orders, telemetry, session = topic(kafka), topic(kafka), uuid.uuid4()
    send(kafka, orders, session, range(3))
    tell(kafka, telemetry, "p", 0, orders, session, (0, 0, 0))

    with pytest.raises(ConfigError, match=f"{orders}' holds records, and none of them is a batch") as told:
        found(kafka, spark, orders, [telemetry, orders])
    assert "telemetry_topic=" in str(told.value.fix)
    assert found(kafka, spark, orders, [telemetry, topic(kafka)]).unledgered == 2  # one that is empty yet


def test_what_our_producer_sends_is_all_there(kafka, spark, tmp_path):
    orders, telemetry = topic(kafka, 3), topic(kafka)
    with ReliableKafkaProducer(
        kafka.bootstrap_servers, store=tmp_path / "own.duckdb", telemetry_topic=telemetry
    ) as producer:
        for number in range(3_000):
            producer.send_message(orders, {"n": number}, key=str(number % 50))
        producer.flush(30)

    report = found(kafka, spark, orders, [telemetry])

    assert (report.acknowledged, report.clean, report.unledgered, report.gaps) == (3_000, True, 0, ())
    assert (
        report.sentence
        == f"{orders}: all 3,000 messages acknowledged are on the log, each once and in order."
    )


def test_an_incremental_audit_reads_the_new_part_and_what_the_ledger_told_late(kafka, spark, tmp_path):
    orders, telemetry, store = topic(kafka, 2), topic(kafka), Store.open(tmp_path / "s.duckdb")
    session = uuid.uuid4()

    def run():
        return found(kafka, spark, orders, [telemetry], store=store, incremental=True)

    send(kafka, orders, session, range(10))
    tell(kafka, telemetry, "p", 0, orders, session, *((0, n, n) for n in range(8)))
    first = run()
    send(kafka, orders, session, [10, 11, 3])
    more_partitions(kafka, orders, 3)
    eventually(lambda: send(kafka, orders, session, [12], partition=2))
    tell(kafka, telemetry, "p", 2, orders, session, (0, 10, 10), (0, 11, 11), (2, 12, 0))
    second = run()
    tell(kafka, telemetry, "p", 1, orders, session, (0, 8, 8), (0, 9, 9), (1, 13, 0))
    third = run()

    assert (first.records, first.unledgered, first.acknowledged) == (10, 2, 8)
    assert (second.records, second.ids("duplicated"), second.acknowledged) == (4, [f"{session}-3"], 3)
    assert (second.reordered, second.spans[2].start) == (0, 0)
    assert [gap[:] for gap in second.gaps] == [("p", 1, 1)]
    assert (third.spans[0].start, third.acknowledged, third.gaps) == (
        8,
        5,
        (),
    )  # the lost one was acknowledged, too
    assert third.ids("lost") == [f"{session}-13"]
    store.close()


def more_partitions(kafka, name, number):
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_partitions([NewPartitions(name, number)])[name].result(30)
    eventually(lambda: len(client.list_topics(name).topics[name].partitions) == number)


def test_a_killed_audit_moves_no_mark(kafka, spark, tmp_path, monkeypatch):
    orders, store = topic(kafka), Store.open(tmp_path / "s.duckdb")
    send(kafka, orders, uuid.uuid4(), range(5))
    with monkeypatch.context() as patched:
        patched.setattr("producer_core.pipeline.integrity.audit_run.look", _break)
        with pytest.raises(KeyboardInterrupt):
            found(kafka, spark, orders, store=store, incremental=True)

    assert found(kafka, spark, orders, store=store, incremental=True).records == 5
    with store.borrow() as connection:
        assert connection.execute("SELECT state FROM audits ORDER BY started_at").fetchall() == [
            ("failed",),
            ("done",),
        ]
    store.close()


def _break(*arguments, **named):
    raise KeyboardInterrupt


def test_audits_of_one_session_leave_nothing_in_spark_s_memory(planted, kafka, spark, monkeypatch):
    _, orders, telemetry = planted
    before = persisted(spark)

    for _ in range(2):
        assert found(kafka, spark, orders, [telemetry]).lost
        assert persisted(spark) == before

    with monkeypatch.context() as patched:  # when everything was read, and nothing judged
        patched.setattr("producer_core.pipeline.integrity.compare._judged", _break)
        with pytest.raises(KeyboardInterrupt):
            found(kafka, spark, orders, [telemetry])
    assert persisted(spark) == before

    with monkeypatch.context() as patched:  # while Spark computes a frame that is to be kept
        patched.setattr("producer_core.pipeline.integrity.groups.groups", _failing)
        with pytest.raises(Exception, match="in the middle"):
            found(kafka, spark, orders, [telemetry])
    eventually(lambda: persisted(spark) <= before)
    blocks = spark.sparkContext._jsc.sc().getRDDStorageInfo
    eventually(lambda: not {one.id() for one in blocks()} - before)


def persisted(spark):
    return {*spark.sparkContext._jsc.getPersistentRDDs()}


def _failing(records):
    return groups(records).selectExpr("* except (n)", "coalesce(raise_error('in the middle'), n) as n")


def test_a_session_of_ours_holds_little_of_what_a_job_needs_no_more(spark):
    settings = dict(spark.sparkContext.getConf().getAll())

    assert settings["spark.buffer.pageSize"] == "4m"
    assert settings["spark.kafka.consumer.fetchedData.cache.timeout"] == "20s"


def test_a_topic_made_anew_is_audited_from_its_start_and_has_lost_what_it_held(kafka, spark, tmp_path):
    orders, telemetry, store = topic(kafka), topic(kafka), Store.open(tmp_path / "s.duckdb")
    old, new = uuid.uuid4(), uuid.uuid4()
    send(kafka, orders, old, range(6))
    tell(kafka, telemetry, "p", 0, orders, old, *((0, n, n) for n in range(6)))
    assert found(kafka, spark, orders, [telemetry], store=store, incremental=True).clean
    kafka.delete_topic(orders)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eventually(lambda: orders not in client.list_topics().topics)
    kafka.create_topic(orders, partitions=1)
    send(kafka, orders, new, range(2))
    tell(kafka, telemetry, "q", 0, orders, new, (0, 0, 0), (0, 1, 1))

    report = found(kafka, spark, orders, [telemetry], store=store, incremental=True)

    assert (report.records, report.lost, report.pending) == (2, 6, 0)
    assert report.sentence == f"{orders}: of 8 messages acknowledged 6 are lost."
    assert report.notes[-1].startswith(f"{orders} was deleted and made anew after an earlier audit")
    again = found(kafka, spark, orders, [telemetry], store=store, incremental=True)
    assert (again.records, again.clean) == (0, True)
    store.close()


def test_what_has_nothing_of_ours_is_audited_all_the_same(kafka, spark):
    """No record; then only records of others, and one whose second header is an id."""
    orders, session = topic(kafka, 2), uuid.uuid4()
    empty = found(kafka, spark, orders)
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for headers in (None, [("trace", b"x")], [("pc-id", None)], [("pc-id", b"short"), ("pc-id", b"x" * 25)]):
        client.produce(orders, b"x", partition=0, headers=headers)
    client.flush(30)
    strangers = found(kafka, spark, orders)
    twice = [("pc-id", b"short"), ("pc-id", id_bytes(session, 1)), ("pc-id", id_bytes(session, 2))]
    client.produce(orders, b"x", partition=1, headers=twice)
    client.flush(30)
    ours = found(kafka, spark, orders)

    assert (empty.records, empty.clean) == (0, True)
    assert "there is nothing in this range" in empty.sentence
    assert (strangers.records, strangers.foreign, strangers.clean) == (4, 4, True)
    assert "no record has a message id of ours" in strangers.sentence
    assert (ours.foreign, ours.ids("unledgered")) == (4, [f"{session}-1"])


def test_what_retention_takes_while_an_audit_reads_has_expired(kafka, spark, monkeypatch):
    orders, telemetry, session = topic(kafka), topic(kafka), uuid.uuid4()
    send(kafka, orders, session, [0, 1, 2, 3, 5])
    tell(kafka, telemetry, "p", 0, orders, session, *((0, n, n) for n in range(4)), (0, 4, 4), (0, 5, 5))
    send(kafka, orders, session, [6])
    ends, client = topic_bounds.edges, AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    asked = []

    def taken(admin, facts):
        """Asked for a second time, it is settled from where on is read: now the first three go."""
        answer = ends(admin, facts)
        asked.append(facts.name)
        if asked.count(orders) == 2:
            for future in client.delete_records([TopicPartition(orders, 0, 3)]).values():
                future.result(30)
        return answer

    monkeypatch.setattr(topic_bounds, "edges", taken)
    report = found(kafka, spark, orders, [telemetry])

    assert (report.expired, report.acknowledged, report.ids("lost")) == (3, 3, [f"{session}-4"])


def test_a_loss_is_looked_up_at_its_own_offset(kafka):
    orders, session = topic(kafka), uuid.uuid4()
    send(kafka, orders, session, range(3))
    names = ("kind", "message_id", "partition", "offset", "other_partition", "other_offset")

    def report(*places):
        rows = [("lost", f"{session}-{seq}", 0, offset, None, None) for seq, offset in places]
        return AuditReport(
            audit_id="a", topic=orders, cluster_id="c", started_at=1.0, finished_at=2.0, isolation="read_committed",
            spans={0: OffsetSpan(0, 5, 0, 5, 5, 5)}, records=3, foreign=0, acknowledged=3, lost=len(rows),
            findings=pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))),
        )  # fmt: skip

    confirm(client_config(kafka.bootstrap_servers), report((7, 1), (8, 3), (9, 4), (10, 100), (11, None)))
    with pytest.raises(PipelineError, match=f"did not read 1 of 2 records .* {session}-2 in partition 0"):
        confirm(client_config(kafka.bootstrap_servers), report((1, 0), (2, 2)))


def test_copies_that_arithmetic_names_are_looked_up_one_by_one(kafka, spark):
    orders, telemetry = topic(kafka), topic(kafka)
    sessions = [uuid.uuid4() for _ in range(6)]
    for number, session in enumerate(sessions):
        offsets = send(kafka, orders, session, range(20))
        tell(
            kafka, telemetry, "p", number, orders, session, *((0, seq, at) for seq, at in enumerate(offsets))
        )
        send(kafka, orders, session, [number])

    report = found(kafka, spark, orders, [telemetry])

    assert report.ids("duplicated") == [f"{session}-{number}" for number, session in enumerate(sessions)]
    assert (report.read_again, report.lost, report.reordered, report.unledgered) == (6, 0, 0, 0)


def test_moments_bound_an_audit(kafka, spark):
    orders, session, now = topic(kafka), uuid.uuid4(), time.time()
    for seq, at in enumerate((now - 300, now - 200, now - 100, now + 1_800)):
        send(kafka, orders, session, [seq], timestamp=at)

    middle = found(kafka, spark, orders, since=now - 250, until=now - 50)

    assert (middle.spans[0].start, middle.spans[0].end, middle.records) == (1, 3, 2)
    assert "timestamps in the future" in middle.sentences[-1]


def test_the_brokers_tell_what_an_audit_must_know(kafka):
    name = topic(kafka, 2, config={"cleanup.policy": "compact,delete"})
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    send(kafka, name, uuid.uuid4(), range(3), partition=1)

    facts = topic_bounds.facts(client, name)

    assert (facts.compacted, facts.partitions) == (True, (0, 1))
    assert topic_bounds.edges(client, facts) == {0: PartitionBounds(0, 0, 0), 1: PartitionBounds(0, 3, 3)}
    assert topic_bounds.first_since(client, facts, time.time() + 60) == {0: None, 1: None}
    assert topic_bounds.facts(client, topic(kafka)).compacted is False
    with pytest.raises(BrokerError, match="cannot be described"):
        topic_bounds.facts(client, "nothing-there")

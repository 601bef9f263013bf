"""The audit of a topic with a real Kafka and a real Spark: transactions, retention, watermarks, and the command."""

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
from producer_core.pipeline.integrity import compare, topic_bounds
from producer_core.pipeline.integrity.confirm_losses import confirm
from producer_core.pipeline.integrity.read_topic import raw_ids
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.spans import OffsetSpan, PartitionBounds
from producer_core.store import Store
from tests.fixtures import planting
from tests.fixtures.comparing import KINDS, acked, batch, differences
from tests.integration.pipeline.integrity.test_compare import SMALL, interpreted  # noqa: F401  a fixture
from tests.support import eventually

pytestmark = pytest.mark.spark


def topic(kafka, partitions=1, **more):
    name = f"t-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=partitions, **more)
    return name


@pytest.fixture(scope="module")
def planted(kafka):
    """A topic with every fault, its ledger topic, and the plan; its transaction stays open for the module."""
    plan = planting.plant(12_000, seed=4, partitions=3)
    orders, telemetry = topic(kafka, 3), topic(kafka, 2)
    cluster = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics().cluster_id
    open_producer = planting.write(plan, kafka.bootstrap_servers, orders, telemetry, cluster)
    yield plan, orders, telemetry
    open_producer.abort_transaction(30)


def found(kafka, spark, name, ledger=(), **more):
    return audit(spark, name, bootstrap_servers=kafka.bootstrap_servers, ledger_topics=ledger, **more)


def send(kafka, name, session, seqs, partition=0, timestamp=None):
    """Send plain records with ids, in this order; return their offsets."""
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


def write_ledger(kafka, ledger, producer, number, name, session, *places):
    """Write one batch of a ledger without a cluster id."""
    value = batch(producer, number, acked(session, *places, topic=name), cluster_id="")
    planting.publish(kafka.bootstrap_servers, ledger, [(producer.encode(), value)])


def test_the_command_reports_every_fault_by_id_in_json_and_by_exit_code(planted, kafka, tmp_path):
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
    quick = {
        **os.environ,
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    }  # compile less: the JVM runs briefly

    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=quick)

    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    steps = [line.partition(f"auditing {orders}: ")[2] for line in done.stderr.splitlines()]
    steps = [step.split()[0] for step in steps if step[:1].islower()]  # without the lines of the progress
    assert steps == ["reading", "reading", "comparing", "finished"]  # the ledger, the records once
    numbers = ("records", "foreign", "acknowledged", "expired")
    assert {name: result[name] for name in numbers} == {name: wanted[name] for name in numbers}
    kept = duckdb.sql(f"SELECT kind, message_id FROM '{result['findings_path']}/*.parquet'").fetchall()
    ids = {kind: plan.codes({each for one, each in kept if one == kind}) for kind in KINDS}
    assert ids == {kind: wanted[kind] for kind in KINDS}
    assert {kind: result[kind] for kind in KINDS} == {kind: len(wanted[kind]) for kind in KINDS}
    assert [str(folder) for folder in (tmp_path / "found").iterdir()] == [result["findings_path"]]
    assert result["sentence"] in (tmp_path / "report.html").read_text()
    with Store.open(tmp_path / "s.duckdb").borrow() as connection:
        audits = connection.execute("SELECT state, lost, foreign_records, undecided FROM audits").fetchall()
        jobs = connection.execute("SELECT kind, state FROM pipeline_jobs").fetchall()
        named = connection.execute("SELECT count(*) FROM audit_findings WHERE kind = 'lost'").fetchone()
    assert audits == [("done", len(wanted["lost"]), wanted["foreign"], 0)]
    assert (jobs, named) == ([("integrity", "done")], (len(wanted["lost"]),))


def test_a_range_beyond_the_limit_is_summed_first_and_only_suspects_are_read_by_id(
    planted, kafka, spark, capsys, monkeypatch
):
    plan, orders, telemetry = planted
    monkeypatch.setattr(compare, "MAX_IDS", 100)

    report = found(kafka, spark, orders, [telemetry])

    assert differences(plan, report, planting.truth(plan)) == {}
    assert report.read_again > 0
    steps = [
        line.partition(f"auditing {orders}: ")[2].split() for line in capsys.readouterr().err.splitlines()
    ]
    steps = [step[0] for step in steps if step and step[0].islower()]
    assert steps == ["reading", "reading", "comparing", "reading", "comparing", "finished"]


def test_a_range_of_several_slices_has_the_same_findings(planted, kafka, spark, monkeypatch):
    plan, orders, telemetry = planted
    monkeypatch.setattr("producer_core.pipeline.integrity.topic_records.FIRST_SLICE", 5_000)

    assert differences(plan, found(kafka, spark, orders, [telemetry]), planting.truth(plan)) == {}


def test_an_audit_is_one_spark_job_whatever_it_finds(planted, kafka, spark, monkeypatch):
    """It reads the records; the Python client reads the ledger. A further job costs a tenth of a second or more."""
    _, orders, telemetry = planted

    def jobs(*arguments):
        before = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
        found(kafka, spark, *arguments)
        return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs() - before

    assert jobs(orders, [telemetry]) == 1
    assert jobs(orders) == 1
    assert jobs(topic(kafka, 3), [topic(kafka)]) == 0
    monkeypatch.setattr("producer_core.pipeline.integrity.topic_records.FIRST_SLICE", 5_000)
    assert jobs(orders, [telemetry]) > 1


def test_a_missing_topic_is_reported_before_spark_starts(kafka, tmp_path):
    command = [sys.executable, "-m", "producer_core.cli", "pipeline", "integrity", "--topic", "nothing-there"]
    command += ["-b", kafka.bootstrap_servers, "--store", str(tmp_path / "s.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "nothing-there" in done.stderr
    assert "Spark" not in done.stderr


def test_a_missing_partition_is_reported_before_spark_starts(kafka, tmp_path):
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
    assert "has no partition 2; its partitions are 0 to 1" in done.stderr
    assert "Spark" not in done.stderr
    assert not (tmp_path / "s.duckdb").exists()


def test_a_data_topic_is_rejected_as_a_ledger(kafka, spark):
    orders, telemetry, session = topic(kafka), topic(kafka), uuid.uuid4()
    send(kafka, orders, session, range(3))
    write_ledger(kafka, telemetry, "p", 0, orders, session, (0, 0, 0))

    with pytest.raises(ConfigError, match=f"{orders}' holds records, but none is a batch") as raised:
        found(kafka, spark, orders, [telemetry, orders])
    assert "telemetry_topic" in str(raised.value.fix)
    # the other one is still empty
    assert found(kafka, spark, orders, [telemetry, topic(kafka)]).unledgered == 2


def test_every_message_of_a_reliable_producer_is_found(kafka, spark, tmp_path):
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
        == f"{orders}: all 3,000 acknowledged messages are in the log, each once and in order."
    )


def test_an_incremental_audit_reads_new_records_and_offsets_of_late_ledger_rows(kafka, spark, tmp_path):
    orders, telemetry, store = topic(kafka, 2), topic(kafka), Store.open(tmp_path / "s.duckdb")
    session = uuid.uuid4()

    def run():
        return found(kafka, spark, orders, [telemetry], store=store, incremental=True)

    send(kafka, orders, session, range(10))
    write_ledger(kafka, telemetry, "p", 0, orders, session, *((0, n, n) for n in range(8)))
    first = run()
    send(kafka, orders, session, [10, 11, 3])
    more_partitions(kafka, orders, 3)
    eventually(lambda: send(kafka, orders, session, [12], partition=2))
    write_ledger(kafka, telemetry, "p", 2, orders, session, (0, 10, 10), (0, 11, 11), (2, 12, 0))
    second = run()
    write_ledger(kafka, telemetry, "p", 1, orders, session, (0, 8, 8), (0, 9, 9), (1, 13, 0))
    third = run()

    assert (first.records, first.unledgered, first.acknowledged) == (10, 2, 8)
    assert (second.records, second.ids("duplicated"), second.acknowledged) == (4, [f"{session}-3"], 3)
    assert (second.reordered, second.spans[2].start) == (0, 0)
    assert [gap[:] for gap in second.gaps] == [("p", 1, 1)]
    # the lost message was acknowledged, too
    assert (third.spans[0].start, third.acknowledged, third.gaps) == (8, 5, ())
    assert third.ids("lost") == [f"{session}-13"]
    store.close()


def more_partitions(kafka, name, number):
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_partitions([NewPartitions(name, number)])[name].result(30)
    eventually(lambda: len(client.list_topics(name).topics[name].partitions) == number)


def test_a_killed_audit_moves_no_watermark(kafka, spark, tmp_path, monkeypatch):
    orders, store = topic(kafka), Store.open(tmp_path / "s.duckdb")
    send(kafka, orders, uuid.uuid4(), range(5))
    with monkeypatch.context() as patched:
        patched.setattr("producer_core.pipeline.integrity.audit_run.run_comparison", _break)
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


def test_audits_of_one_session_leave_no_frames_in_sparks_memory(planted, kafka, spark, monkeypatch):
    _, orders, telemetry = planted
    before = persisted(spark)

    for _ in range(2):
        assert found(kafka, spark, orders, [telemetry]).lost
        assert persisted(spark) == before

    with monkeypatch.context() as patched:  # after the reads, before the findings
        patched.setattr("producer_core.pipeline.integrity.compare._findings", _break)
        with pytest.raises(KeyboardInterrupt):
            found(kafka, spark, orders, [telemetry])
    assert persisted(spark) == before

    with monkeypatch.context() as patched:  # while Spark computes a frame
        patched.setattr("producer_core.pipeline.integrity.topic_records.raw_ids", _failing)
        with pytest.raises(Exception, match="in the middle"):
            found(kafka, spark, orders, [telemetry])
    eventually(lambda: persisted(spark) <= before)
    blocks = spark.sparkContext._jsc.sc().getRDDStorageInfo
    eventually(lambda: not {one.id() for one in blocks()} - before)


def persisted(spark):
    return {*spark.sparkContext._jsc.getPersistentRDDs()}


def _failing(records):
    return raw_ids(records).selectExpr(
        "partition", "coalesce(raise_error('in the middle'), offset) as offset", "id"
    )


def test_a_session_has_small_pages_and_short_kafka_caches(spark):
    settings = dict(spark.sparkContext.getConf().getAll())

    assert settings["spark.buffer.pageSize"] == "4m"
    assert settings["spark.kafka.consumer.fetchedData.cache.timeout"] == "20s"


def test_a_re_created_topic_is_audited_from_its_start_and_the_old_messages_are_lost(kafka, spark, tmp_path):
    orders, telemetry, store = topic(kafka), topic(kafka), Store.open(tmp_path / "s.duckdb")
    old, new = uuid.uuid4(), uuid.uuid4()
    send(kafka, orders, old, range(6))
    write_ledger(kafka, telemetry, "p", 0, orders, old, *((0, n, n) for n in range(6)))
    assert found(kafka, spark, orders, [telemetry], store=store, incremental=True).clean
    kafka.delete_topic(orders)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eventually(lambda: orders not in client.list_topics().topics)
    kafka.create_topic(orders, partitions=1)
    send(kafka, orders, new, range(2))
    write_ledger(kafka, telemetry, "q", 0, orders, new, (0, 0, 0), (0, 1, 1))

    report = found(kafka, spark, orders, [telemetry], store=store, incremental=True)

    assert (report.records, report.lost, report.pending) == (2, 6, 0)
    assert report.sentence == f"{orders}: of 8 acknowledged messages, 6 are lost."
    assert report.notes[-1].startswith(f"{orders} was deleted and re-created after an earlier audit")
    again = found(kafka, spark, orders, [telemetry], store=store, incremental=True)
    assert (again.records, again.clean) == (0, True)
    store.close()


def test_a_topic_without_message_ids_can_be_audited(kafka, spark):
    """An empty topic, then one with records of other producers, then one whose second header is an id."""
    orders, session = topic(kafka, 2), uuid.uuid4()
    empty = found(kafka, spark, orders)
    client = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for headers in (None, [("trace", b"x")], [("pc-id", None)], [("pc-id", b"short"), ("pc-id", b"x" * 25)]):
        client.produce(orders, b"x", partition=0, headers=headers)
    client.flush(30)
    foreign = found(kafka, spark, orders)
    twice = [("pc-id", b"short"), ("pc-id", id_bytes(session, 1)), ("pc-id", id_bytes(session, 2))]
    client.produce(orders, b"x", partition=1, headers=twice)
    client.flush(30)
    with_id = found(kafka, spark, orders)

    assert (empty.records, empty.clean) == (0, True)
    assert "this range is empty" in empty.sentence
    assert (foreign.records, foreign.foreign, foreign.clean) == (4, 4, True)
    assert "no record has a producer_core message id" in foreign.sentence
    assert (with_id.foreign, with_id.ids("unledgered")) == (4, [f"{session}-1"])


def test_records_removed_by_retention_during_an_audit_are_expired(kafka, spark, monkeypatch):
    orders, telemetry, session = topic(kafka), topic(kafka), uuid.uuid4()
    send(kafka, orders, session, [0, 1, 2, 3, 5])
    write_ledger(
        kafka, telemetry, "p", 0, orders, session, *((0, n, n) for n in range(4)), (0, 4, 4), (0, 5, 5)
    )
    send(kafka, orders, session, [6])
    bounds, client = topic_bounds.bounds, AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    requests = []

    def bounds_then_retention(admin, facts):
        """Remove the first three records after the second request, when the start of the read is already fixed."""
        answer = bounds(admin, facts)
        requests.append(facts.name)
        if requests.count(orders) == 2:
            for future in client.delete_records([TopicPartition(orders, 0, 3)]).values():
                future.result(30)
        return answer

    monkeypatch.setattr(topic_bounds, "bounds", bounds_then_retention)
    report = found(kafka, spark, orders, [telemetry])

    assert (report.expired, report.acknowledged, report.ids("lost")) == (3, 3, [f"{session}-4"])


def test_a_loss_is_looked_up_at_its_acknowledged_offset(kafka):
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
    with pytest.raises(
        PipelineError, match=f"of 2 records that seemed lost, 1 is in the log: {session}-2 in partition 0"
    ):
        confirm(client_config(kafka.bootstrap_servers), report((1, 0), (2, 2)))


def test_copies_detected_by_offset_arithmetic_are_looked_up_individually(kafka, spark, monkeypatch):
    monkeypatch.setattr(compare, "MAX_IDS", -1)
    orders, telemetry = topic(kafka), topic(kafka)
    sessions = [uuid.uuid4() for _ in range(6)]
    for number, session in enumerate(sessions):
        offsets = send(kafka, orders, session, range(20))
        write_ledger(
            kafka, telemetry, "p", number, orders, session, *((0, seq, at) for seq, at in enumerate(offsets))
        )
        send(kafka, orders, session, [number])

    report = found(kafka, spark, orders, [telemetry])

    assert report.ids("duplicated") == [f"{session}-{number}" for number, session in enumerate(sessions)]
    assert (report.read_again, report.lost, report.reordered, report.unledgered) == (6, 0, 0, 0)


def test_an_audit_of_a_time_range_reads_only_records_within_it(kafka, spark):
    orders, session, now = topic(kafka), uuid.uuid4(), time.time()
    for seq, at in enumerate((now - 300, now - 200, now - 100, now + 1_800)):
        send(kafka, orders, session, [seq], timestamp=at)

    middle = found(kafka, spark, orders, since=now - 250, until=now - 50)

    assert (middle.spans[0].start, middle.spans[0].end, middle.records) == (1, 3, 2)
    assert "timestamps in the future" in middle.sentences[-1]


def test_the_audit_reads_topic_properties_and_partition_bounds(kafka):
    name = topic(kafka, 2, config={"cleanup.policy": "compact,delete"})
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    send(kafka, name, uuid.uuid4(), range(3), partition=1)

    facts = topic_bounds.facts(client, name)

    assert (facts.compacted, facts.partitions) == (True, (0, 1))
    assert topic_bounds.bounds(client, facts) == {0: PartitionBounds(0, 0, 0), 1: PartitionBounds(0, 3, 3)}
    assert topic_bounds.first_since(client, facts, time.time() + 60) == {0: None, 1: None}
    assert topic_bounds.facts(client, topic(kafka)).compacted is False
    with pytest.raises(BrokerError, match="cannot be described"):
        topic_bounds.facts(client, "nothing-there")

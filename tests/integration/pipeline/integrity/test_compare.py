"""The audit on Spark frames without Kafka: Spark decodes ids and sums windows like this process."""

from __future__ import annotations

import random
import uuid

import duckdb
import pyarrow as pa
import pytest

from producer_core._internal.id_header import text_header
from producer_core.messages import id_bytes, record_id
from producer_core.pipeline.integrity import groups
from producer_core.pipeline.integrity.audit_tables import audit_tables
from producer_core.pipeline.integrity.findings import written
from producer_core.pipeline.integrity.read_topic import raw_ids, with_ids
from tests.fixtures.audit_reports import report
from tests.fixtures.comparing import OnSpark, planned
from tests.fixtures.planting import plant
from tests.unit.pipeline.integrity.test_compare import (  # noqa: F401  run again with Spark
    ONE,
    TWO,
    compared,
    test_a_compacted_topic_is_checked_for_copies_and_order_only,
    test_a_range_with_many_faults_is_compared_with_the_records_before_it,
    test_a_read_uncommitted_audit_sees_aborted_copies_and_open_transactions,
    test_every_finding_belongs_to_a_planted_case,
    test_exactly_the_faults_of_each_case_are_found,
    test_exactly_the_planted_faults_are_found_by_their_ids,
    test_messages_checked_by_an_earlier_audit_are_not_reported_again,
    way,
)

pytestmark = pytest.mark.spark

SMALL = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Interpret plans: compiling the plan of a small frame takes longer than running it."""


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark):
    before = {name: spark.conf.get(name) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def backend(spark):
    return OnSpark(spark)


def test_spark_and_the_python_reader_read_the_same_ids(spark):
    good, other = id_bytes(ONE, 7), id_bytes(TWO, 4096)
    cases = [
        None,
        [],
        [("pc-id", good)],
        [("trace", b"x"), ("pc-id", good)],
        [("pc-id", b"short"), ("pc-id", good)],
        [("pc-id", good), ("pc-id", other)],
        [("pc-id", None)],
        [("pc-id", b"x" * 25)],
        [("PC-ID", good)],
        *text_cases(good, other),
    ]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table(
        {
            "partition": pa.array([0] * len(cases), pa.int32()),
            "offset": pa.array(range(len(cases)), pa.int64()),
            "headers": pa.array(
                [case and [{"key": k, "value": v} for k, v in case] for case in cases], pa.list_(header)
            ),
        }
    )
    frame = spark.createDataFrame(table)
    found = with_ids(frame).orderBy("offset").collect()
    wanted = [record_id(case) for case in cases]
    assert [
        bytes(row.session) + row.seq.to_bytes(8, "big") if row.session else None for row in found
    ] == wanted
    assert [row.id and bytes(row.id) for row in raw_ids(frame).orderBy("offset").collect()] == wanted


def text_cases(good, other):
    """Return headers with ids as text: in each place, mixed with binary ones, and texts that are no id."""
    text = text_header(good)
    drawn = random.Random(27)
    numbers = (0, 1, 9, 10, 2**32, 10**18, 2**63 - 1)
    ids = [id_bytes(uuid.UUID(bytes=drawn.randbytes(16)), number) for number in numbers for _ in range(5)]
    no_ids = (
        text.upper(), text + b"\n", text + b"\r", b" " + text, text[:37], text[:37] + b"07", text[:37] + b"-1",
        text[:37] + str(1 << 64).encode(), text[:37] + b"9" * 20, text[:37] + b"1" * 21, b"\xff" * 40,
        text.replace(b"-", b""), text.replace(b"-", b"_"), "\u0663".encode() + text[2:],
    )  # fmt: skip
    return [
        *([("pc-id", text_header(one))] for one in ids),
        *([("trace", b"x"), ("pc-id", text_header(one))] for one in ids),
        [("pc-id", text), ("pc-id", other)],
        [("pc-id", other), ("pc-id", text)],
        [("pc-id", None), ("pc-id", b"short"), ("pc-id", text), ("pc-id", other)],
        *([("pc-id", value)] for value in no_ids),
        *([("pc-id", value), ("pc-id", text)] for value in no_ids),
    ]


def test_spark_reads_the_highest_id_from_either_form(spark):
    raw = b"\xff" * 24
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[{"key": "pc-id", "value": one}] for one in (raw, text_header(raw))]
    table = pa.table(
        {
            "partition": pa.array([0, 0], pa.int32()),
            "offset": pa.array([0, 1], pa.int64()),
            "headers": pa.array(headers, pa.list_(header)),
        }
    )
    assert [bytes(row.id) for row in raw_ids(spark.createDataFrame(table)).collect()] == [raw, raw]


def test_an_id_with_a_sequence_beyond_64_bits_is_invalid(spark):
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table(
        {
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([0], pa.int64()),
            "headers": pa.array([[{"key": "pc-id", "value": b"\xff" * 24}]], pa.list_(header)),
        }
    )
    assert with_ids(spark.createDataFrame(table)).collect()[0].session is None


def test_records_are_aggregated_before_any_shuffle(spark, backend):
    """Groups are shuffled, not records: below every exchange there is a partial sum."""
    from pyspark.sql import functions as F

    records = with_ids(backend.topic(planned(plant(2_000, seed=1)))._read({0: (0, 9_999)}))

    grouped = executed(groups.groups(records))
    again = executed(groups.records_of(records, F.broadcast(groups.groups(records).select(*groups.KEY))))

    first, exchange, partial = (
        grouped.index(word) for word in ("HashAggregate", "Exchange", "partial_count")
    )
    assert first < exchange < partial
    assert grouped.count("Exchange") == 1
    assert "BroadcastHashJoin" in again.partition("Exchange")[0]
    assert "CartesianProduct" not in again
    assert "BroadcastNestedLoopJoin" not in again


def executed(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_spark_writes_findings_to_a_folder_with_a_scheme(spark, tmp_path):
    with audit_tables() as tables:
        tables.put(
            "findings",
            pa.table({
                "kind": ["lost"], "seq": [2**40], "partition": pa.array([0], pa.int32()), "off": [5],
                "session": pa.array([ONE.bytes], pa.uuid()), "other_partition": pa.array([None], pa.int32()),
                "other_off": pa.array([None], pa.int64()),
            }),
        )  # fmt: skip
        done = written(report(), tables, tmp_path.as_uri(), spark)

    assert done.findings_path == f"{tmp_path.as_uri()}/a-1"
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT kind, message_id, session FROM '{tmp_path}/a-1/*.parquet'"
        ).fetchall()
    assert rows == [("lost", f"{ONE}-{2**40}", ONE.bytes)]

"""The audit's SQL on frames without Kafka: it finds every fault by id, and no others."""

from __future__ import annotations

import time
import uuid

import orjson
import pyarrow as pa
import pytest

from producer_core.metrics.ack_ledger import rows_of, unplaced_rows
from producer_core.metrics.batch import Notice
from producer_core.pipeline.integrity import groups, ledgers, verdicts
from producer_core.pipeline.integrity.cached_frames import materialize
from producer_core.pipeline.integrity.compare import first_pass, rows_in_spans, run_comparison, verdict
from producer_core.pipeline.integrity.comparison import ComparisonRequest, LedgerFrames
from producer_core.pipeline.integrity.findings import listed
from producer_core.pipeline.integrity.ledger_sources import read_ledgers
from producer_core.pipeline.integrity.read_topic import with_ids
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.spans import PartitionBounds, judged_from, refreshed, spans
from producer_core.store import Batch, Store
from tests.fixtures import planting
from tests.fixtures.planting import plant, truth

pytestmark = pytest.mark.spark

TOPIC, CLUSTER = "orders", "c-1"
KINDS = ("lost", "duplicated", "reordered", "unledgered", "given_up_found", "pending")
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


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


def log(spark, rows):
    """Return decoded records: (partition, offset, session, seq); a session of None marks another producer's record."""
    columns = list(zip(*rows, strict=True)) or [[]] * 4
    sessions = [one.bytes if one is not None else None for one in columns[2]]
    return frame(spark, columns[0], columns[1], sessions, columns[3])


def frame(spark, partition, offset, session, seq):
    kinds = (pa.int32(), pa.int64(), pa.binary(), pa.int64())
    columns = [
        pa.array(values, kind) for values, kind in zip((partition, offset, session, seq), kinds, strict=True)
    ]
    return spark.createDataFrame(
        pa.table(dict(zip(("partition", "offset", "session", "seq"), columns, strict=True)))
    )


def planned(spark, plan, *, hidden=False):
    columns = plan.columns(hidden=hidden)
    names = [session.bytes for session in plan.sessions]
    known = columns["session"] != planting.FOREIGN
    session = [
        names[one] if is_known else None
        for one, is_known in zip(columns["session"].tolist(), known.tolist(), strict=True)
    ]
    seq = pa.array(columns["seq"], mask=~known)
    return frame(spark, columns["partition"], columns["offset"], session, seq)


def telemetry(spark, values, at=1.7e9):
    """Return telemetry records as Kafka has them."""
    number = len(values)
    return spark.createDataFrame(
        pa.table(
            {
                "topic": pa.array(["telemetry"] * number, pa.string()),
                "partition": pa.array([0] * number, pa.int32()),
                "offset": pa.array(range(number), pa.int64()),
                "timestamp": pa.array([int(at * 1e6)] * number, pa.timestamp("us", "UTC")),
                "value": pa.array(values, pa.binary()),
            }
        )
    )


def batch(producer, sequence, rows, **more):
    value = {
        "v": 1,
        "producer_id": producer,
        "sequence": sequence,
        "cluster_id": CLUSTER,
        "ledger": rows,
        **more,
    }
    return orjson.dumps(value, default=list)


def acked(session, *places, topic=TOPIC):
    """Return ledger rows of (partition, seq, offset); an offset of None is unknown."""
    rows = []
    for partition in dict.fromkeys(one[0] for one in places):
        here = [one[1:] for one in places if one[0] == partition]
        known = [(seq, offset) for seq, offset in here if offset is not None]
        place = (session.bytes, topic, partition)
        rows += rows_of(place, *map(list, zip(*known, strict=True))) if known else []
        rows += unplaced_rows(place, [seq for seq, offset in here if offset is None])
    return rows


def audited(
    spark, records, values, bounds, *, begin=None, judged=None, isolation="read_committed", later=None, **more
):
    """Return the report of one comparison, as a job would make it."""
    found_spans = judged_from(
        refreshed(spans(bounds, begin=begin, isolation=isolation), bounds), judged or {}
    )

    def read(ranges, among=None):
        which = " or ".join(
            f"(partition = {number} and offset >= {start} and offset < {end})"
            for number, (start, end) in ranges.items()
        )
        return records.where(which or "false")

    batches = materialize(
        ledgers.with_cluster(ledgers.deduplicated(ledgers.readable(ledgers.parsed(telemetry(spark, values)))))
    )
    frames = LedgerFrames(
        ledgers.valid_rows(materialize(ledgers.rows(batches))), materialize(ledgers.given_up(batches, TOPIC))
    )
    request = ComparisonRequest(TOPIC, CLUSTER, found_spans, time.time(), **more)
    found = run_comparison(spark, request, frames, read=read, bounds_now=lambda: later or bounds)
    gaps = tuple(ledgers.gaps(ledgers.batch_ranges(batches)).collect())
    return AuditReport.made(
        request, found, listed(found.findings), audit_id="a", isolation=isolation, gaps=gaps
    )


def differences(plan, report, wanted):
    """Return missing and unexpected findings by kind; empty when there are none."""
    kinds = [kind for kind in KINDS if len(wanted[kind]) <= 10_000]
    wrong = {kind: plan.codes(report.ids(kind)) ^ wanted[kind] for kind in kinds}
    wrong |= {
        kind: {getattr(report, kind), len(wanted[kind])}
        for kind in KINDS
        if getattr(report, kind) != len(wanted[kind])
    }
    numbers = ("expired", "acknowledged", "records", "foreign")
    wrong |= {
        name: {getattr(report, name), wanted[name]}
        for name in numbers
        if getattr(report, name) != wanted[name]
    }
    return {kind: found for kind, found in wrong.items() if found}


def test_exactly_the_planted_faults_are_found_by_their_ids(spark):
    plan = plant(30_000, seed=1, sessions=4, partitions=3)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(spark, planned(spark, plan), values, plan.edges())

    assert differences(plan, report, truth(plan)) == {}
    assert report.lost > 5 < report.reordered
    assert report.duplicated == 20
    assert [(f"p-{plan.hole[0]}", *plan.hole[1:])] == [tuple(gap) for gap in report.gaps]


def test_a_read_uncommitted_audit_sees_aborted_copies_and_open_transactions(spark):
    plan = plant(8_000, seed=5, silent=False, hole=False)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(
        spark, planned(spark, plan, hidden=True), values, plan.edges(), isolation="read_uncommitted"
    )

    assert differences(plan, report, truth(plan, hidden=True)) == {}
    assert report.pending == 0
    assert report.duplicated == 20 + 7 * plan.partitions


def test_a_range_with_many_faults_is_compared_with_the_records_before_it(spark):
    plan = plant(20_000, seed=9, faults=200)
    begin = {number: int(log.end * 0.3) for number, log in enumerate(plan.logs)}
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(spark, planned(spark, plan), values, plan.edges(), begin=begin, fresh="false")

    assert differences(plan, report, truth(plan, start=begin)) == {}


# one comparison of many small cases: each has partitions and a session of its own


class Cases:
    """Collects records, ledgers and bounds of cases that are compared together."""

    def __init__(self):
        self.rows, self.values, self.bounds, self.later, self.sessions = [], [], {}, {}, {}

    def add(self, name, build, *, partitions=1, end=10, later=None):
        """Add a case: `build(session, partition)` returns the records and the ledger rows of each batch."""
        session, partition = uuid.UUID(int=len(self.sessions) + 1), len(self.bounds)
        self.sessions[name] = session
        for number in range(partition, partition + partitions):
            self.bounds[number] = PartitionBounds(0, end, end)
            self.later[number] = later or self.bounds[number]
        rows, batches = build(session, partition)
        self.rows += rows
        self.values += [batch(f"{name}-{number}", 0, rows) for number, rows in enumerate(batches)]


def in_order(session, count, partition=0, first=0):
    return [(partition, first + number, session, number) for number in range(count)]


def ledger_of(session, count, partition=0):
    return acked(session, *((partition, number, number) for number in range(count)))


def at(session, partition, *seqs):
    """Return records at offsets from 0 on."""
    return [(partition, offset, session, seq) for offset, seq in enumerate(seqs)]


def acked_in_place(rows):
    return acked(rows[0][2], *((partition, seq, offset) for partition, offset, _, seq in rows))


FAULTS = {
    "an entry in two batches": {},
    "an entry in two batches of different size": {},
    "an entry in two batches beside a loss": {"lost": {3}},
    "two producers' rows of one window": {},
    "acknowledged at two places of a partition": {"duplicated": {4}},
    "acknowledged in two partitions": {"duplicated": {4}},
    "a loss beside a copy": {"lost": {3}, "duplicated": {1}},
    "two of a window lost": {"lost": {2, 3}},
    "an acknowledgement without an offset that is in the log": {},
    "first without an offset, then sent again": {},
    "above the end, then sent again": {},
    "a re-created topic": {"lost": {0, 1, 2}},
    "a removed partition": {"lost": {5}},
    "removed by retention during the read": {},
    "another topic": {},
    "across windows": {"reordered": {1}},
    "a copy far ahead": {"duplicated": {9_000}},
    "no ledger": {"duplicated": {0}, "reordered": {7}, "unledgered": {0, 1, 2, 9, 7}},
    "given up and in the log": {"given_up_found": {2}},
    "given up, and sent again later": {},
}


@pytest.fixture(scope="module")
def compared(spark):
    cases = Cases()
    add = cases.add
    add("an entry in two batches", lambda s, p: (in_order(s, 5, p), [ledger_of(s, 5, p)] * 2))
    add(
        "an entry in two batches of different size",
        lambda s, p: (in_order(s, 5, p), [ledger_of(s, 5, p), acked(s, (p, 2, 2))]),
    )
    add(
        "an entry in two batches beside a loss",
        lambda s, p: (in_order(s, 3, p), [ledger_of(s, 4, p), acked(s, (p, 2, 2))]),
    )
    add(
        "first without an offset, then sent again",
        lambda s, p: (in_order(s, 2, p), [acked(s, (p, 1, None)), ledger_of(s, 2, p)]),
    )
    add(
        "above the end, then sent again",
        lambda s, p: (in_order(s, 2, p), [acked(s, (p, 1, 50)), ledger_of(s, 2, p)]),
    )
    halves = (range(3), range(3, 6))
    add(
        "two producers' rows of one window",
        lambda s, p: (in_order(s, 6, p), [acked(s, *((p, n, n) for n in half)) for half in halves]),
    )
    add(
        "acknowledged at two places of a partition",
        lambda s, p: ([*in_order(s, 5, p), (p, 7, s, 4)], [ledger_of(s, 5, p), acked(s, (p, 4, 7))]),
    )
    add(
        "acknowledged in two partitions",
        lambda s, p: ([*in_order(s, 5, p), (p + 1, 7, s, 4)], [ledger_of(s, 5, p), acked(s, (p + 1, 4, 7))]),
        partitions=2,
    )
    add("a loss beside a copy", lambda s, p: (at(s, p, 0, 1, 2, 1), [ledger_of(s, 4, p)]))
    add("two of a window lost", lambda s, p: (at(s, p, 0, 1), [ledger_of(s, 4, p)]))
    add(
        "an acknowledgement without an offset that is in the log",
        lambda s, p: (in_order(s, 2, p), [acked(s, (p, 0, 0), (p, 1, None))]),
    )
    add("a re-created topic", lambda s, p: ([], [ledger_of(s, 3, p)]), end=0)
    add(
        "a removed partition",
        lambda s, p: (in_order(s, 1, p), [[*ledger_of(s, 1, p), *acked(s, (99, 5, 3))]]),
    )
    add(
        "removed by retention during the read",
        lambda s, p: (in_order(s, 6, p)[3:], [ledger_of(s, 6, p)]),
        later=PartitionBounds(3, 10, 10),
    )
    add(
        "another topic",
        lambda s, p: (in_order(s, 2, p), [[*ledger_of(s, 2, p), *acked(s, (p, 2, 2), topic="payments")]]),
    )
    add("across windows", lambda s, p: ((rows := at(s, p, 0, 5_000, 1, 9_000)), [acked_in_place(rows)]))
    add(
        "a copy far ahead",
        lambda s, p: (
            [*at(s, p, 0, 1, 9_000), *at(s, p + 1, 9_000, 10)],
            [[*acked(s, (p, 0, 0), (p, 1, 1), (p, 9_000, 2)), *acked(s, (p + 1, 10, 1))]],
        ),
        partitions=2,
    )
    add("no ledger", lambda s, p: ([*at(s, p, 0, 1, 2, 0, 9, 7), (p, 6, None, None)], []))
    add("given up and in the log", lambda s, p: (in_order(s, 3, p), [ledger_of(s, 2, p)]))
    add(
        "given up, and sent again later",
        lambda s, p: ((rows := at(s, p, 0, 2, 3, 1)), [acked_in_place(rows)]),
    )
    dead_letters = [
        [str(cases.sessions[name]), seq, TOPIC, "_MSG_TIMED_OUT", "possibly_persisted", 1.7e9]
        for name, seq in (("given up and in the log", 2), ("given up, and sent again later", 1))
    ]
    elsewhere = [
        batch("q", 1, ledger_of(uuid.UUID(int=999), 3), cluster_id="another cluster"),
        batch("r", 0, ledger_of(uuid.UUID(int=998), 3), cluster_id=""),  # before it knew its cluster
        batch("r", 1, [], cluster_id="another cluster"),
    ]
    cases.values += [cases.values[0], batch("q", 0, [], given_up=dead_letters), *elsewhere]
    return cases, audited(spark, log(spark, cases.rows), cases.values, cases.bounds, later=cases.later)


@pytest.mark.parametrize("name", FAULTS)
def test_exactly_the_faults_of_each_case_are_found(compared, name):
    cases, report = compared
    session = f"{cases.sessions[name]}-"
    found = {
        kind: {int(one.removeprefix(session)) for one in report.ids(kind) if one.startswith(session)}
        for kind in KINDS
    }
    assert {kind: seqs for kind, seqs in found.items() if seqs} == FAULTS[name]


def test_every_finding_belongs_to_a_planted_case(compared):
    cases, report = compared
    sessions = {str(session) for session in cases.sessions.values()}
    assert {row["message_id"].rpartition("-")[0] for row in report.rows()} <= sessions
    assert (report.foreign, report.expired, report.undecided, report.pending) == (1, 3, 0, 0)


@pytest.mark.parametrize(
    ("bounds", "begin", "at", "kind"),
    [
        ({0: PartitionBounds(0, 5, 5)}, {}, 0.0, "lost"),
        ({0: PartitionBounds(1, 5, 5)}, {}, 0.0, "expired"),
        ({0: PartitionBounds(0, 4, 5)}, {}, 0.0, "pending"),
        ({0: PartitionBounds(0, 5, 5)}, {}, 99.0, "pending"),
        ({0: PartitionBounds(0, 5, 5)}, {0: 2}, 0.0, "undecided"),
        ({0: PartitionBounds(0, 5, 5)}, {}, None, None),
    ],
)
def test_a_missing_message_without_an_offset_has_the_expected_verdict(spark, bounds, begin, at, kind):
    request = ComparisonRequest(TOPIC, CLUSTER, spans(bounds, begin=begin), started=100.0)
    moment = "cast(null as double)" if at is None else f"cast({at} as double)"
    row = (
        spark.range(1).selectExpr(f"{moment} as at").selectExpr(f"{verdict(request, request.spans)} as kind")
    )
    assert row.first().kind == kind


def test_messages_checked_by_an_earlier_audit_are_not_reported_again(spark):
    """The old batch was in the ledger of an audit that requested the log's end when that was 8."""
    values = [
        batch("p", 0, acked(ONE, (0, 0, 0), (0, 6, 6), (0, 8, 8), (0, 50, 50))),
        batch("p", 1, acked(ONE, (0, 9, 9), (0, 60, 60))),
    ]
    rows = [(0, 0, ONE, 0), (0, 5, TWO, 1), (0, 9, ONE, 9)]
    report = audited(
        spark, log(spark, rows), values, {0: PartitionBounds(0, 10, 10)}, begin={0: 5}, judged={0: 8},
        fresh="position = 1", old="position = 0",
    )  # fmt: skip
    assert report.ids("lost") == [f"{ONE}-6", f"{ONE}-60"]
    assert (report.acknowledged, report.duplicated, report.ids("unledgered")) == (3, 0, [f"{TWO}-1"])


def test_a_compacted_topic_is_checked_for_copies_and_order_only(spark):
    rows = [(0, 1, ONE, 1), (0, 3, ONE, 3), (0, 5, ONE, 2), (0, 6, ONE, 3)]
    report = audited(
        spark,
        log(spark, rows),
        [batch("p", 0, ledger_of(ONE, 7))],
        {0: PartitionBounds(0, 7, 7)},
        compacted=True,
    )
    assert (report.lost, report.auditable) == (0, False)
    assert (report.ids("duplicated"), report.ids("reordered")) == ([f"{ONE}-3"], [f"{ONE}-2"])


def test_unreadable_records_and_rows_of_a_ledger_are_counted(spark):
    good = ledger_of(ONE, 3)[0]
    contradictions = (
        good._replace(count=7),
        good._replace(fp=9 * 10**18),
        good._replace(fp=-1),
        good._replace(sum_seq=9 * 10**18),
        good._replace(first_window=1),
        good._replace(seqs=(4 * 10**18,) * 3),
        good._replace(seqs=(4 * 10**18,) * 3, late=3),
    )
    values = [
        batch("p", 0, [good, *contradictions, ["x"], [None] * 11]),
        b"not JSON",
        b'{"v": 2}',
        b'{"v": 1, "producer_id": "p", "sequence": "three"}',
        b'{"v": 1, "producer_id": "p", "sequence": 1, "ledger": "none"}',
        b'{"v": 1, "producer_id": "p", "sequence": -1}',
        b'{"v": 1, "producer_id": "p", "sequence": 2, "first": 3}',
        b'{"v": 1, "producer_id": "p", "sequence": 2, "ledger_lost": -5}',
        *[b'{"v": 1, "producer_id": "p", "sequence": 2, "ledger_lost": 9000000000000000000}'] * 2,
    ]
    parsed = ledgers.parsed(telemetry(spark, values))
    rows = ledgers.rows(ledgers.readable(parsed))
    assert ledgers.counted(parsed) == {"strange": 8, "lost": 0, "repeated": 0, "unlocated": 1}
    assert (ledgers.valid_rows(rows).count(), ledgers.invalid_rows(rows).count()) == (
        1,
        2 + len(contradictions),
    )
    far = ledgers.parsed(telemetry(spark, [batch("p", 0, [good._replace(offs=(9 * 10**18,) * 3)])]))
    assert ledgers.entries(ledgers.valid_rows(ledgers.rows(far))).count() == 3


def test_combined_batches_are_not_a_gap(spark):
    values = [
        batch("p", 0, []),
        batch("p", 7, [], first=1),
        batch("p", 10, []),
        batch("q", 4, []),
        batch("p", 9, []),
    ]
    batches = ledgers.readable(ledgers.parsed(telemetry(spark, values)))
    gaps = ledgers.gaps(ledgers.batch_ranges(batches)).collect()
    assert [tuple(row) for row in gaps] == [("p", 8, 8)]


def test_an_acknowledgement_in_several_records_counts_once(spark):
    """5 and 6 occur alone, as from a store, and within 5 to 7; q's combined record has less than its single ones."""
    values = [
        *(batch("p", number, []) for number in (4, 5, 6, 4)),
        batch("p", 7, [], first=5),
        batch("q", 1, []),
        batch("q", 2, [], first=1, ledger_lost=9),
    ]
    batches = ledgers.readable(ledgers.parsed(telemetry(spark, values)))
    left = ledgers.deduplicated(batches).select("producer_id", "sequence", "first").collect()
    assert sorted(map(str, map(tuple, left))) == sorted(
        map(str, [("p", 4, None), ("p", 7, 5), ("q", 1, None), ("q", 2, 1)])
    )
    assert ledgers.counted(batches) == {"strange": 0, "lost": 9, "repeated": 3, "unlocated": 0}
    assert ledgers.gaps(ledgers.batch_ranges(batches)).collect() == []


def test_a_ledger_in_a_store_reports_its_gaps_and_dropped_acknowledgements(spark, tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    notice = Notice("ledger_lost", "warning", "left out", time.time() + 60, {"acknowledgements": 7})
    store.append(Batch("p", 0, ledger=tuple(ledger_of(ONE, 5))))
    store.append(Batch("p", 3, ledger=tuple(acked(ONE, (0, 5, None))), notices=(notice,)))
    store.append(Batch("another", 9))
    store.append(Batch("another", 11))

    ledger = read_ledgers(spark, [], store, {}, topic="orders", cluster="")

    assert ledgers.valid_rows(ledgers.rows(ledger.batches)).agg({"n": "sum"}).first()[0] == 6
    assert [tuple(row) for row in ledgers.gaps(ledger.batch_ranges).collect()] == [("p", 1, 2)]
    assert (ledger.left_out, ledger.strange) == (7, 0)
    store.close()


def test_spark_and_the_python_reader_read_the_same_ids(spark):
    from producer_core.messages import id_bytes, record_id

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
    found = with_ids(spark.createDataFrame(table)).orderBy("offset").collect()
    wanted = [record_id(case) for case in cases]
    assert [
        bytes(row.session) + row.seq.to_bytes(8, "big") if row.session else None for row in found
    ] == wanted


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


def test_records_are_aggregated_before_any_shuffle(spark):
    """Groups are shuffled, not records: below every exchange there is a partial sum, or the ledger."""
    plan = plant(2_000, seed=1)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]
    records = planned(spark, plan)
    batches = ledgers.readable(ledgers.parsed(telemetry(spark, values)))
    frames = LedgerFrames(
        ledgers.valid_rows(materialize(ledgers.rows(batches))), materialize(ledgers.given_up(batches, TOPIC))
    )
    request = ComparisonRequest(TOPIC, CLUSTER, spans(plan.edges()), 0.0)
    rows = materialize(
        groups.zoned_rows(groups.with_doubts(rows_in_spans(spark, request, frames.rows, request.spans)))
    )

    grouped = executed(groups.groups(records))
    whole = executed(first_pass(request, frames, rows, lambda ranges: records))

    first, exchange, partial = (
        grouped.index(word) for word in ("HashAggregate", "Exchange", "partial_count")
    )
    assert first < exchange < partial
    assert grouped.count("Exchange") == 1
    assert "CartesianProduct" not in whole
    assert "BroadcastNestedLoopJoin" not in whole


def executed(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_spark_formats_message_ids_like_the_producer(spark):
    from producer_core.messages import id_bytes, id_text

    named = log(spark, [(0, 0, ONE, 12), (0, 1, uuid.UUID(int=2**127 + 5), 2**40)]).withColumn(
        "id", verdicts.message_id()
    )
    assert [row.id for row in named.orderBy("offset").collect()] == [
        id_text(id_bytes(ONE, 12)),
        id_text(id_bytes(uuid.UUID(int=2**127 + 5), 2**40)),
    ]

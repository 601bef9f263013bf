"""The audit's SQL, on frames that a test makes: no Kafka, every fault found by id and nothing else."""

from __future__ import annotations

import time
import uuid

import orjson
import pyarrow as pa
import pytest

from producer_core.ledger import rows_of, unplaced_rows
from producer_core.pipeline.integrity import groups, judging, ledgers
from producer_core.pipeline.integrity.findings import listed
from producer_core.pipeline.integrity.looking import Ledgers, Question, compare, keep, look
from producer_core.pipeline.integrity.reading import decoded
from producer_core.pipeline.integrity.report import AuditReport
from producer_core.pipeline.integrity.spans import Edge, seen_after, spans
from tests import planting
from tests.planting import plant, truth

pytestmark = pytest.mark.spark

TOPIC, CLUSTER = "orders", "c-1"
KINDS = ("lost", "duplicated", "reordered", "unledgered", "given_up_found", "pending")
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def log(spark, rows):
    """Decoded records: (partition, offset, session, seq); a session of None is somebody else's."""
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
    ours = columns["session"] != planting.FOREIGN
    session = [
        names[one] if mine else None
        for one, mine in zip(columns["session"].tolist(), ours.tolist(), strict=True)
    ]
    seq = pa.array(columns["seq"], mask=~ours)
    return frame(spark, columns["partition"], columns["offset"], session, seq)


def telemetry(spark, values, at=1.7e9):
    """Telemetry records as Kafka has them."""
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
    """Ledger rows of (partition, seq, offset); an offset of None is unknown."""
    rows = []
    for partition in dict.fromkeys(one[0] for one in places):
        here = [one[1:] for one in places if one[0] == partition]
        known = [(seq, offset) for seq, offset in here if offset is not None]
        place = (session.bytes, topic, partition)
        rows += rows_of(place, *map(list, zip(*known, strict=True))) if known else []
        rows += unplaced_rows(place, [seq for seq, offset in here if offset is None])
    return rows


def audited(spark, records, values, edges, *, begin=None, isolation="read_committed", later=None, **more):
    """The report of one look, as a job would make it."""
    found_spans = seen_after(spans(edges, begin=begin, isolation=isolation), edges)

    def read(ranges):
        which = " or ".join(
            f"(partition = {number} and offset >= {start} and offset < {end})"
            for number, (start, end) in ranges.items()
        )
        return records.where(which or "false")

    batches = keep(ledgers.once(ledgers.understood(ledgers.parsed(telemetry(spark, values)))))
    told = Ledgers(keep(ledgers.rows(batches)), keep(ledgers.given_up(batches, TOPIC)))
    question = Question(TOPIC, CLUSTER, found_spans, time.time(), **more)
    found = look(spark, question, told, read=read, edges_now=lambda: later or edges)
    gaps = tuple(ledgers.gaps(batches).collect())
    return AuditReport.made(
        question, found, listed(found.findings), audit_id="a", isolation=isolation, gaps=gaps
    )


def differences(plan, report, wanted):
    """What was found and should not, and the other way round, by kind; empty where all is well."""
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


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_planted_fault_is_found_by_its_id_and_nothing_else(spark, seed):
    plan = plant(30_000, seed=seed, sessions=4 + seed, partitions=2 + seed)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(spark, planned(spark, plan), values, plan.edges())

    assert differences(plan, report, truth(plan)) == {}
    assert report.lost > 5 < report.reordered
    assert report.duplicated == 20
    assert [(f"p-{plan.hole[0]}", *plan.hole[1:])] == [tuple(gap) for gap in report.gaps]


def test_an_uncommitted_reader_sees_aborted_copies_and_what_is_behind_an_open_transaction(spark):
    plan = plant(8_000, seed=5)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(
        spark, planned(spark, plan, hidden=True), values, plan.edges(), isolation="read_uncommitted"
    )

    assert differences(plan, report, truth(plan, hidden=True)) == {}
    assert report.pending == 0
    assert report.duplicated == 20 + 7 * plan.partitions


@pytest.mark.parametrize("share", [0.3, 0.77])
def test_a_part_of_the_topic_is_judged_with_what_stands_before_it(spark, share):
    plan = plant(20_000, seed=9, faults=20)
    begin = {number: int(log.end * share) for number, log in enumerate(plan.logs)}
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(spark, planned(spark, plan), values, plan.edges(), begin=begin, fresh="false")

    assert differences(plan, report, truth(plan, start=begin)) == {}


def test_dense_faults_are_all_found(spark):
    plan = plant(20_000, seed=11, faults=300)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    assert differences(plan, audited(spark, planned(spark, plan), values, plan.edges()), truth(plan)) == {}


def simple(spark, rows, values, *, end=10, **more):
    return audited(spark, log(spark, rows), values, {0: Edge(0, end, end), 1: Edge(0, end, end)}, **more)


def in_order(session, count, partition=0, first=0):
    return [(partition, first + number, session, number) for number in range(count)]


def told(session, count, partition=0, first=0):
    return acked(session, *((partition, number, first + number) for number in range(count)))


def test_a_batch_that_comes_twice_counts_once(spark):
    value = batch("p", 0, told(ONE, 5))
    report = simple(spark, in_order(ONE, 5), [value, value])
    assert (report.acknowledged, report.clean, report.read_again) == (5, True, 0)


def test_an_entry_that_two_batches_tell_is_one_acknowledgement(spark):
    rows = [batch("p", number, told(ONE, 5)) for number in range(2)]
    report = simple(spark, in_order(ONE, 5), rows)
    assert (report.clean, report.unledgered) == (True, 0)


def test_rows_of_two_producers_about_one_window_add_up(spark):
    halves = [acked(ONE, *((0, n, n) for n in part)) for part in (range(3), range(3, 6))]
    report = simple(spark, in_order(ONE, 6), [batch(f"p-{n}", 0, half) for n, half in enumerate(halves)])
    assert (report.acknowledged, report.clean, report.read_again) == (6, True, 0)


@pytest.mark.parametrize("partition", [0, 1])
def test_what_was_acknowledged_at_two_places_is_there_twice(spark, partition):
    """Both sides agree on it, so no sum differs."""
    rows = [*in_order(ONE, 5), (partition, 7, ONE, 4)]
    values = [batch("p", 0, told(ONE, 5)), batch("q", 0, acked(ONE, (partition, 4, 7)))]
    report = simple(spark, rows, values)
    assert report.ids("duplicated") == [f"{ONE}-4"]
    assert (report.lost, report.reordered, report.unledgered) == (0, 0, 0)


def test_a_loss_beside_a_copy_does_not_cancel_out(spark):
    rows = [*in_order(ONE, 3), (0, 3, ONE, 1), *in_order(ONE, 0)]
    report = simple(spark, rows, [batch("p", 0, told(ONE, 4))])
    assert (report.ids("lost"), report.ids("duplicated")) == ([f"{ONE}-3"], [f"{ONE}-1"])


def test_an_acknowledgement_without_a_place_is_found_anywhere(spark):
    values = [batch("p", 0, acked(ONE, (0, 0, 0), (0, 1, None), (1, 2, None)))]
    report = simple(spark, in_order(ONE, 2), values)
    assert (report.ids("lost"), report.unledgered) == ([f"{ONE}-2"], 0)


@pytest.mark.parametrize(
    ("edges", "begin", "kind"),
    [
        ({0: Edge(0, 5, 5)}, {}, "lost"),
        ({0: Edge(1, 5, 5)}, {}, "expired"),
        ({0: Edge(0, 4, 5)}, {}, "pending"),
        ({0: Edge(0, 5, 5)}, {0: 2}, "undecided"),
    ],
)
def test_an_acknowledgement_without_a_place_that_is_nowhere_is_judged_by_what_can_be_known(
    spark, edges, begin, kind
):
    report = audited(spark, log(spark, []), [batch("p", 0, acked(ONE, (0, 7, None)))], edges, begin=begin)
    assert (getattr(report, kind), report.ids(kind)) == (1, [f"{ONE}-7"])


def test_a_topic_that_was_made_anew_has_lost_what_was_acknowledged_above_its_end(spark):
    report = simple(
        spark, in_order(TWO, 2), [batch("p", 0, told(ONE, 9)), batch("q", 0, told(TWO, 2))], end=2
    )
    assert report.lost == 9
    assert report.pending == 0


def test_a_partition_that_is_not_there_any_more_has_lost_all(spark):
    report = simple(spark, in_order(ONE, 1), [batch("p", 0, [*told(ONE, 1), *acked(ONE, (7, 5, 3))])])
    assert report.ids("lost") == [f"{ONE}-5"]


def test_what_retention_takes_while_the_audit_reads_has_expired(spark):
    edges = {0: Edge(0, 6, 6)}
    report = audited(
        spark,
        log(spark, in_order(ONE, 6)[3:]),
        [batch("p", 0, told(ONE, 6))],
        edges,
        later={0: Edge(3, 6, 6)},
    )
    assert (report.lost, report.expired, report.expired_ranges[0][:4]) == (0, 3, (0, 3, 0, 2))


def test_messages_of_other_topics_and_clusters_are_nobody_s_loss(spark):
    other = batch("q", 0, told(TWO, 3), cluster_id="c-2")
    values = [batch("p", 0, [*told(ONE, 2), *acked(TWO, (0, 1, 1), topic="payments")]), other]
    report = simple(spark, in_order(ONE, 2), values)
    assert (report.clean, report.acknowledged) == (True, 2)


def test_a_compacted_topic_is_judged_for_copies_and_order_only(spark):
    rows = [(0, 1, ONE, 1), (0, 3, ONE, 3), (0, 5, ONE, 2), (0, 6, ONE, 3)]
    report = simple(spark, rows, [batch("p", 0, told(ONE, 7))], compacted=True)
    assert (report.lost, report.auditable) == (0, False)
    assert (report.ids("duplicated"), report.ids("reordered")) == ([f"{ONE}-3"], [f"{ONE}-2"])


def test_a_topic_without_any_ledger_is_judged_for_copies_and_order(spark):
    rows = [*in_order(ONE, 3), (0, 3, ONE, 0), (0, 4, ONE, 9), (0, 5, ONE, 7), (0, 6, None, None)]
    report = simple(spark, rows, [])
    assert (report.ids("duplicated"), report.ids("reordered")) == ([f"{ONE}-0"], [f"{ONE}-7"])
    assert (report.unledgered, report.foreign, report.unauditable) == (5, 1, True)


def test_what_a_producer_gave_up_and_stands_there_all_the_same_has_its_own_kind(spark):
    letter = [str(ONE), 2, TOPIC, "_MSG_TIMED_OUT", "possibly_persisted", 1.7e9]
    report = simple(spark, in_order(ONE, 3), [batch("p", 0, told(ONE, 2), given_up=[letter])])
    assert (report.ids("given_up_found"), report.unledgered, report.lost) == ([f"{ONE}-2"], 0, 0)


def test_order_is_judged_across_windows(spark):
    rows = [(0, 0, ONE, 0), (0, 1, ONE, 5_000), (0, 2, ONE, 1), (0, 3, ONE, 9_000)]
    values = [batch("p", 0, acked(ONE, *((0, seq, offset) for _, offset, _, seq in rows)))]
    assert simple(spark, rows, values).ids("reordered") == [f"{ONE}-1"]


def test_a_copy_far_ahead_puts_nobody_out_of_order(spark):
    rows = [(1, 0, ONE, 9_000), (1, 1, ONE, 10), *in_order(ONE, 2), (0, 2, ONE, 9_000)]
    values = [batch("p", 0, acked(ONE, (1, 10, 1), (0, 0, 0), (0, 1, 1), (0, 9_000, 2)))]
    report = simple(spark, rows, values)
    assert (report.ids("duplicated"), report.reordered) == ([f"{ONE}-9000"], 0)


def test_what_cannot_be_read_in_a_ledger_is_counted(spark):
    good, contradiction = told(ONE, 3)[0], told(TWO, 3)[0]._replace(count=7)
    values = [
        batch("p", 0, [good, contradiction, ["x"], [None] * 11]),
        b"no JSON",
        b'{"v": 2}',
        b'{"v": 1, "producer_id": "p", "sequence": "three"}',
        b'{"v": 1, "producer_id": "p", "sequence": 1, "ledger": "none"}',
    ]
    parsed = ledgers.parsed(telemetry(spark, values))
    known = ledgers.understood(parsed)
    assert ledgers.strange(parsed).count() == 3
    assert (ledgers.rows(known).count(), ledgers.odd(known).count()) == (1, 3)


def test_batches_that_were_added_up_are_no_hole(spark):
    values = [
        batch("p", 0, []),
        batch("p", 7, [], first=1),
        batch("p", 10, []),
        batch("q", 4, []),
        batch("p", 9, []),
    ]
    holes = ledgers.gaps(ledgers.understood(ledgers.parsed(telemetry(spark, values)))).collect()
    assert [tuple(row) for row in holes] == [("p", 8, 8)]


def test_an_id_is_read_as_the_producer_s_own_reader_does(spark):
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
    found = decoded(spark.createDataFrame(table)).orderBy("offset").collect()
    wanted = [record_id(case) for case in cases]
    assert [
        bytes(row.session) + row.seq.to_bytes(8, "big") if row.session else None for row in found
    ] == wanted


def test_a_sequence_beyond_a_signed_number_is_nobody_s_id(spark):
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table(
        {
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([0], pa.int64()),
            "headers": pa.array([[{"key": "pc-id", "value": b"\xff" * 24}]], pa.list_(header)),
        }
    )
    assert decoded(spark.createDataFrame(table)).collect()[0].session is None


def test_records_are_grouped_where_they_are_read(spark):
    """What is shuffled are groups: below every exchange stands a partial sum, or the ledger."""
    plan = plant(2_000, seed=1)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]
    records = planned(spark, plan)
    batches = ledgers.understood(ledgers.parsed(telemetry(spark, values)))
    told = Ledgers(ledgers.rows(batches), ledgers.given_up(batches, TOPIC))
    question = Question(TOPIC, CLUSTER, spans(plan.edges()), 0.0)

    grouped = groups.groups(records)._jdf.queryExecution().executedPlan().toString()
    whole = (
        compare(spark, question, told, lambda ranges: records)._jdf.queryExecution().executedPlan().toString()
    )

    first, exchange, partial = (
        grouped.index(word) for word in ("HashAggregate", "Exchange", "partial_count")
    )
    assert first < exchange < partial
    assert "CartesianProduct" not in whole
    assert "BroadcastNestedLoopJoin" not in whole


def test_an_id_is_written_as_people_read_it(spark):
    from producer_core.messages import id_bytes, id_text

    named = log(spark, [(0, 0, ONE, 12), (0, 1, uuid.UUID(int=2**127 + 5), 2**40)]).withColumn(
        "id", judging.message_id()
    )
    assert [row.id for row in named.orderBy("offset").collect()] == [
        id_text(id_bytes(ONE, 12)),
        id_text(id_bytes(uuid.UUID(int=2**127 + 5), 2**40)),
    ]

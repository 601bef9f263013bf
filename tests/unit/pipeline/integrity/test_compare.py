"""The audit's rules on records without Kafka: they find every fault by id, and no others."""

from __future__ import annotations

import time
import uuid

import pyarrow as pa
import pytest

from producer_core.metrics.ack_ledger import rows_of
from producer_core.metrics.batch import Notice
from producer_core.pipeline.integrity import compare
from producer_core.pipeline.integrity.audit_tables import audit_tables
from producer_core.pipeline.integrity.compare import unplaced_facts
from producer_core.pipeline.integrity.comparison import ComparisonRequest
from producer_core.pipeline.integrity.ledger_sources import read_ledgers, sum_up
from producer_core.pipeline.integrity.spans import PartitionBounds, spans
from producer_core.store import Batch, Store
from tests.fixtures import planting
from tests.fixtures.comparing import (
    CLUSTER,
    KINDS,
    TOPIC,
    InMemory,
    acked,
    audited,
    batch,
    differences,
    log,
    planned,
    telemetry,
)
from tests.fixtures.planting import plant, truth

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture(scope="module")
def backend():
    return InMemory()


@pytest.fixture(scope="module", params=["ids", "sums"], autouse=True)
def way(request):
    """Fetch all ids, or sum windows first and fetch the ids of suspects."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "sums":
            patched.setattr(compare, "MAX_IDS", -1)
        yield request.param


def test_exactly_the_planted_faults_are_found_by_their_ids(backend):
    plan = plant(30_000, seed=1, sessions=4, partitions=3)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(backend, planned(plan), values, plan.edges())

    assert differences(plan, report, truth(plan)) == {}
    assert report.lost > 5 < report.reordered
    assert report.duplicated == 20
    assert [(f"p-{plan.hole[0]}", *plan.hole[1:])] == [tuple(gap) for gap in report.gaps]


def test_a_read_uncommitted_audit_sees_aborted_copies_and_open_transactions(backend):
    plan = plant(8_000, seed=5, silent=False, hole=False)
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(backend, planned(plan, hidden=True), values, plan.edges(), isolation="read_uncommitted")

    assert differences(plan, report, truth(plan, hidden=True)) == {}
    assert report.pending == 0
    assert report.duplicated == 20 + 7 * plan.partitions


def test_a_range_with_many_faults_is_compared_with_the_records_before_it(backend):
    plan = plant(20_000, seed=9, faults=200)
    begin = {number: int(log.end * 0.3) for number, log in enumerate(plan.logs)}
    values = [value for _, value in planting.ledger_values(plan, TOPIC, CLUSTER)]

    report = audited(backend, planned(plan), values, plan.edges(), begin=begin, fresh="false")

    assert differences(plan, report, truth(plan, start=begin)) == {}


class Unread:
    """Records that Spark has started to read."""

    def __init__(self):
        self.events = []

    def ids(self, ranges):
        self.events.append("started")
        return self

    groups = ids

    def __iter__(self):
        self.events.append("added")
        return iter(())

    def close(self):
        self.events.append("closed")


def compared_with(tables, topic, read_ledgers, bounds):
    request = ComparisonRequest(TOPIC, CLUSTER, spans(bounds), time.time())
    return compare.run_comparison(
        tables, request, topic, bounds_now=lambda: bounds, read_ledgers=read_ledgers
    )


def test_the_ledgers_are_read_while_spark_reads_the_topic_and_the_read_is_closed():
    topic = Unread()
    with audit_tables() as tables:

        def read_ledgers():
            topic.events.append("ledgers")
            sum_up(tables, TOPIC)

        compared_with(tables, topic, read_ledgers, {0: PartitionBounds(0, 9, 9)})
    assert topic.events == ["started", "ledgers", "added", "closed"]


def test_after_an_error_in_a_ledger_the_read_of_the_topic_is_closed():
    topic = Unread()

    def read_ledgers():
        raise LookupError("not a ledger")

    with audit_tables() as tables, pytest.raises(LookupError):
        compared_with(tables, topic, read_ledgers, {0: PartitionBounds(0, 9, 9)})
    assert topic.events == ["started", "closed"]


def test_messages_of_other_partitions_in_a_suspect_window_are_not_decided_one_by_one(backend):
    """A window of 3,000 sequences in three partitions: only the thousand of the partition with the loss are."""
    places = [(seq % 3, seq, seq // 3) for seq in range(3_000)]
    records = log([(partition, offset, ONE, seq) for partition, seq, offset in places if seq != 600])
    bounds = {number: PartitionBounds(0, 1_000, 1_000) for number in range(3)}
    with audit_tables() as tables:
        tables.add("add_telemetry", [telemetry([batch("p", 0, acked(ONE, *places))])])
        sum_up(tables, TOPIC)
        compared_with(tables, backend.topic(records), lambda: None, bounds)
        assert tables.select("SELECT kind, seq FROM findings") == [("lost", 600)]
        assert tables.count("ledger_entries") == 1_000


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
def compared(backend, way):
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
    return cases, audited(backend, log(cases.rows), cases.values, cases.bounds, later=cases.later)


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
def test_a_missing_message_without_an_offset_has_the_expected_verdict(bounds, begin, at, kind):
    request = ComparisonRequest(TOPIC, CLUSTER, spans(bounds, begin=begin), started=100.0)
    facts = unplaced_facts(request, request.spans)
    with audit_tables() as tables:
        tables.put("places", pa.table({"session": pa.array([], pa.uuid()), "seq": pa.array([], pa.int64())}))
        entry = {"session": [ONE.bytes], "seq": [1], "partition": [0], "noted": [at], "zone": ["unplaced"]}
        kinds = {"session": pa.uuid(), "noted": pa.float64()}
        tables.put("ledger", pa.table({name: pa.array(one, kinds.get(name)) for name, one in entry.items()}))
        tables.find("unplaced", **facts)
        assert dict(tables.rows("finding_counts")) == ({kind: 1} if kind else {})


def test_messages_checked_by_an_earlier_audit_are_not_reported_again(backend):
    """The old batch was in the ledger of an audit that requested the log's end when that was 8."""
    values = [
        batch("p", 0, acked(ONE, (0, 0, 0), (0, 6, 6), (0, 8, 8), (0, 50, 50))),
        batch("p", 1, acked(ONE, (0, 9, 9), (0, 60, 60))),
    ]
    rows = [(0, 0, ONE, 0), (0, 5, TWO, 1), (0, 9, ONE, 9)]
    report = audited(
        backend, log(rows), values, {0: PartitionBounds(0, 10, 10)}, begin={0: 5}, judged={0: 8},
        fresh="position = 1", old="position = 0",
    )  # fmt: skip
    assert report.ids("lost") == [f"{ONE}-6", f"{ONE}-60"]
    assert (report.acknowledged, report.duplicated, report.ids("unledgered")) == (3, 0, [f"{TWO}-1"])


@pytest.mark.parametrize(("since", "expired"), [(None, 3), (1.6e9, 3), (1.8e9, 0)])
def test_an_audit_of_a_time_range_counts_only_messages_of_it_as_expired(backend, since, expired):
    """The ledger was written at 1.7e9."""
    bounds = {0: PartitionBounds(3, 5, 5)}
    report = audited(
        backend, log(in_order(ONE, 5)[3:]), [batch("p", 0, ledger_of(ONE, 5))], bounds, since=since
    )
    assert (report.expired, report.acknowledged, report.lost) == (expired, 2, 0)


@pytest.mark.parametrize(("waiting", "lost"), [((), []), (((ONE.bytes, 1),), [f"{ONE}-1"])])
def test_a_message_without_an_offset_that_waited_for_a_transaction_is_judged_by_the_next_audit(
    backend, waiting, lost
):
    values = [batch("p", 0, acked(ONE, (0, 0, 0), (0, 1, None), (0, 2, None)))]
    report = audited(
        backend, log(in_order(ONE, 1)), values, {0: PartitionBounds(0, 1, 1)}, fresh="false", waiting=waiting
    )
    assert report.ids("lost") == lost


def test_late_rows_about_offsets_that_expired_unaudited_are_expired(backend):
    bounds, values = {0: PartitionBounds(4, 6, 6)}, [batch("p", 0, ledger_of(ONE, 4))]
    records = log(in_order(ONE, 6)[4:])
    late, known = (
        audited(backend, records, values, bounds, begin={0: 4}, fresh=fresh, waiting=())
        for fresh in ("true", "false")
    )
    assert (late.expired, known.expired) == (4, 0)


def test_a_compacted_topic_is_checked_for_copies_and_order_only(backend):
    rows = [(0, 1, ONE, 1), (0, 3, ONE, 3), (0, 5, ONE, 2), (0, 6, ONE, 3)]
    report = audited(
        backend,
        log(rows),
        [batch("p", 0, ledger_of(ONE, 7))],
        {0: PartitionBounds(0, 7, 7)},
        compacted=True,
    )
    assert (report.lost, report.auditable) == (0, False)
    assert (report.ids("duplicated"), report.ids("reordered")) == ([f"{ONE}-3"], [f"{ONE}-2"])


def contradicting(good):
    """Return rows whose number of sequences, window or sums contradict each other."""
    return (
        good._replace(count=7),
        good._replace(fp=9 * 10**18),
        good._replace(fp=-1),
        good._replace(sum_seq=9 * 10**18),
        good._replace(first_window=1),
        good._replace(seqs=(4 * 10**18,) * 3),
        good._replace(seqs=(4 * 10**18,) * 3, late=3),
    )


def test_rows_that_contradict_themselves_are_counted_and_left_out(backend):
    good, late = ledger_of(ONE, 3)[0], rows_of((TWO.bytes, TOPIC, 0), [5, 3, 4], [0, 1, 2])[0]
    contradictions = (
        *contradicting(good),
        good._replace(offs=(1,)),
        good._replace(partition="0.4"),
        good._replace(session="x"),
    )
    with audit_tables() as tables:
        tables.add(
            "add_telemetry",
            [telemetry([batch("p", 0, [good, late, *contradictions, ["x"], [None] * 11])])],
        )
        facts = sum_up(tables, TOPIC)
        found = tables.select("SELECT session, lowest, highest, falls FROM ledger_rows ORDER BY ALL")
        each = tables.select("SELECT seq, off FROM entries('ledger_rows') ORDER BY ALL")
    assert facts.strange == 2 + len(contradictions)
    assert found == [(ONE, 0, 2, False), (TWO, 3, 5, True)]
    assert each == [(0, 0), (1, 1), (2, 2), (3, 1), (4, 2), (5, 0)]


def test_unreadable_records_and_rows_of_a_ledger_are_counted():
    good = ledger_of(ONE, 3)[0]
    contradictions = contradicting(good)
    values = [
        batch("p", 0, [good, *contradictions, ["x"], [None] * 11]),
        b"not JSON",
        None,
        b"[1]",
        b'{"v": 1, "producer_id": "\xff", "sequence": 1',
        b'{"v": "1", "producer_id": "p", "sequence": 1}',
        b'{"v": 1.0, "producer_id": "p", "sequence": 1}',
        b'{"v": 1, "producer_id": "p", "sequence": 1.5}',
        b'{"v": 2}',
        b'{"v": 1, "producer_id": "p", "sequence": "three"}',
        b'{"v": 1, "producer_id": "p", "sequence": 1, "ledger": "none"}',
        b'{"v": 1, "producer_id": "p", "sequence": -1}',
        b'{"v": 1, "producer_id": "p", "sequence": 2, "first": 3}',
        b'{"v": 1, "producer_id": "p", "sequence": 2, "ledger_lost": -5}',
        *[b'{"v": 1, "producer_id": "p", "sequence": 2, "ledger_lost": 9000000000000000000}'] * 2,
    ]
    far = batch("far", 0, [good._replace(offs=(9 * 10**18,) * 3)])
    with audit_tables() as tables:
        tables.add("add_telemetry", [telemetry([*values, far])])
        facts = sum_up(tables, TOPIC)
        assert tables.select("SELECT count(*) FROM readable_batches WHERE NOT readable") == [(14,)]
        offsets = tables.select("SELECT off FROM entries('ledger_rows') ORDER BY off")
        assert [off for (off,) in offsets] == [-1, -1, 0, 1, 2, 9 * 10**18]  # a sum beyond 64 bits is unknown
        assert tables.count("ledger_rows") == 2
    assert (facts.strange, facts.left_out) == (14 + 2 + len(contradictions), 0)


def test_combined_batches_are_not_a_gap(backend):
    values = [
        batch("p", 0, []),
        batch("p", 7, [], first=1),
        batch("p", 10, []),
        batch("q", 4, []),
        batch("p", 9, []),
    ]
    with audit_tables() as tables:
        tables.add("add_telemetry", [telemetry(values)])
        assert sum_up(tables, TOPIC).gaps == (("p", 8, 8),)


def test_an_acknowledgement_in_several_records_counts_once(backend):
    """5 and 6 occur alone, as from a store, and within 5 to 7; q's combined record has less than its single ones."""
    values = [
        *(batch("p", number, []) for number in (4, 5, 6, 4)),
        batch("p", 7, [], first=5),
        batch("q", 1, []),
        batch("q", 2, [], first=1, ledger_lost=9),
    ]
    with audit_tables() as tables:
        tables.add("add_telemetry", [telemetry(values)])
        facts = sum_up(tables, TOPIC)
        assert batches_of(tables) == [("p", 4, None), ("p", 7, 5), ("q", 1, None), ("q", 2, 1)]
    assert (facts.strange, facts.left_out, facts.gaps) == (0, 9, ())


def batches_of(tables):
    """Return the batches that count."""
    return tables.select("SELECT producer_id, sequence, first FROM known ORDER BY ALL")


def test_a_ledger_in_a_store_reports_its_gaps_and_dropped_acknowledgements(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    notice = Notice("ledger_lost", "warning", "left out", time.time() + 60, {"acknowledgements": 7})
    store.append(Batch("p", 0, ledger=tuple(ledger_of(ONE, 5))))
    store.append(Batch("p", 3, ledger=tuple(acked(ONE, (0, 5, None))), notices=(notice,)))
    store.append(Batch("another", 9))
    store.append(Batch("another", 11))

    with audit_tables() as tables:
        ledger = read_ledgers(None, tables, [], store, topic="orders", cluster="")
        assert tables.select("SELECT sum(n)::INTEGER FROM ledger_rows") == [(6,)]

    assert ledger.gaps == (("p", 1, 2),)
    assert (ledger.left_out, ledger.strange) == (7, 0)
    store.close()


def test_a_message_acknowledged_without_an_offset_is_lost_from_an_empty_range(backend):
    """Regression: a long range without records and without known offsets ended the audit with a TypeError."""
    report = audited(
        backend, log([]), [batch("p", 0, acked(ONE, (0, 3, None)))], {0: PartitionBounds(0, 10, 10)}
    )

    assert (report.records, report.lost) == (0, 1)


def test_a_row_whose_sequences_leave_its_window_on_the_way_is_left_out(backend):
    """Regression: its sums overflowed and ended the audit."""
    most = 2**63 - 1
    row = [str(ONE), TOPIC, 0, 0, 5, 6, 0, 0, 0, 3, [0, most, most, -most, 3 - most], [0, 1, 1, 1, 0]]
    ledger = batch("p", 0, [*acked(ONE, (0, 0, 0), (0, 1, 1), (0, 3, 3)), row])

    report = audited(backend, log([(0, 0, ONE, 0), (0, 1, ONE, 1)]), [ledger], {0: PartitionBounds(0, 4, 4)})

    assert report.lost == 1

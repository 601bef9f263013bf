"""The ledger: its rows contain the acknowledgements, are additive, and mark those whose order is not proved."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.events import Acknowledged
from producer_core.messages import id_bytes
from producer_core.metrics.ack_ledger import (
    MODULUS,
    UNKNOWN,
    WINDOW,
    AckLedger,
    entries,
    fingerprint,
    rows_of,
    unplaced_rows,
)
from producer_core.store import Batch, Store
from tests.fixtures.ledgers import SESSION, Acked, given_up, ledger_rows
from tests.fixtures.replays import dead_letter

OTHER = uuid.UUID("018bcfe5-6800-7000-8000-000000000002")
PLACE = (SESSION.bytes, "orders", 3)
pairs = st.dictionaries(
    st.integers(0, 5 * WINDOW), st.one_of(st.integers(0, 2000), st.integers(MODULUS - 50, MODULUS + 50)), max_size=80
).map(lambda found: [(seq, offset) for offset, seq in {offset: seq for seq, offset in found.items()}.items()])  # fmt: skip
"""Distinct sequences at distinct offsets, in any order."""


def acked(seq, offset, *, topic="orders", partition=3, session=SESSION, own=True):
    return Acknowledged(topic, partition, offset, 0.01, 10, 1, seq if own else -1, id_bytes(session, seq))


def ledger_rows_of(items, *, cuts=(), fresh=True):
    """Return the rows of all takes; the items are added in parts that end at the indexes `cuts`."""
    ledger, rows, start = AckLedger(SESSION.bytes, fresh=fresh), [], 0
    for end in (*sorted(cuts), len(items)):
        if items[start:end]:
            ledger.acknowledged(items[start:end])
        rows += ledger.take()[0]
        start = end
    return rows


@given(pairs)
def test_a_row_decodes_to_its_acknowledgements(found):
    rows = rows_of(PLACE, [seq for seq, _ in found], [offset for _, offset in found]) if found else []

    assert sorted(pair for row in rows for pair in entries(row)) == sorted(found)
    for row in rows:
        acknowledgements = list(entries(row))
        assert (row.session, row.topic, row.partition) == (str(SESSION), "orders", 3)
        assert {seq // WINDOW for seq, _ in acknowledgements} == {row.first_window}
        assert row.count == len(acknowledgements)
        assert row.sum_seq == sum(seq % WINDOW for seq, _ in acknowledgements)
        assert (
            row.fp
            == sum((seq % WINDOW + 1) * (offset % MODULUS) for seq, offset in acknowledgements)
            == fingerprint(acknowledgements)
        )
        offsets = [offset for _, offset in acknowledgements]
        assert offsets == sorted(offsets) and (row.off_min, row.off_max) == (offsets[0], offsets[-1])


@given(pairs, st.lists(st.integers(0, 80), max_size=4))
def test_rows_are_additive_regardless_of_how_they_are_split(found, cuts):
    items = [acked(seq, offset) for seq, offset in found]
    whole, parts = Counter(), Counter()
    for total, rows in (
        (whole, ledger_rows_of(items)),
        (parts, ledger_rows_of(items, cuts=[cut % (len(items) + 1) for cut in cuts])),
    ):
        for row in rows:
            total[row.first_window, "count"] += row.count
            total[row.first_window, "sum"] += row.sum_seq
            total[row.first_window, "fp"] += row.fp
    assert whole == parts


@given(pairs, st.lists(st.integers(0, 80), max_size=4))
def test_without_late_rows_offsets_follow_sequences(found, cuts):
    """`late` may count acknowledgements that are in order, but never misses one that is not."""
    items = [acked(seq, offset) for seq, offset in found]
    rows = ledger_rows_of(items, cuts=[cut % (len(items) + 1) for cut in cuts])

    by_offset = [seq for seq, _ in sorted(found, key=lambda pair: pair[1])]
    assert any(row.late for row in rows) or by_offset == sorted(by_offset)


def test_a_message_at_a_higher_offset_than_a_later_one_is_counted_as_late():
    (row,) = rows_of(PLACE, [1, 2, 5, 3, 4, 6], [10, 11, 12, 13, 14, 15])
    assert row.late == 2  # 3 and 4 are after 5

    later, earlier = ledger_rows_of([acked(8, 20), acked(7, 21)], cuts=[1])
    assert (later.late, earlier.late) == (0, 1)


def test_a_message_below_the_offset_of_an_earlier_row_is_late():
    first, second = ledger_rows_of([acked(10, 100), acked(20, 50)], cuts=[1])
    assert (first.late, second.late) == (0, 1)  # 20 is before 10, whose row was taken earlier


def test_the_first_row_of_a_session_of_an_earlier_process_is_late():
    first, second = ledger_rows_of([acked(5, 10), acked(6, 11)], cuts=[1], fresh=False)
    assert (first.late, second.late) == (1, 0)
    (row,) = rows_of(PLACE, [1, 2], [1, 2], before=UNKNOWN)
    assert row.late == 2


def test_an_acknowledgement_without_an_offset_has_a_row_without_offsets():
    placed, unplaced, far = sorted(ledger_rows_of([acked(1, 7), acked(3, None), acked(2, None), acked(9000, None)]), key=lambda row: row[:6])  # fmt: skip
    assert (placed.off_min, placed.fp) == (7, 14)
    assert (unplaced.count, unplaced.sum_seq, unplaced.fp, unplaced.off_min, unplaced.off_max, unplaced.late) == (2, 5, None, -1, -1, 0)  # fmt: skip
    assert list(entries(unplaced)) == [(2, None), (3, None)]
    assert far.first_window == 2 and far == unplaced_rows(PLACE, [9000])[0]


def test_a_replayed_message_keeps_its_own_session():
    own, other, nameless = (
        acked(1, 5),
        acked(4, 6, session=OTHER, own=False),
        Acknowledged("orders", 3, 7, 0.0, 1, 1, -1),
    )
    rows = ledger_rows_of([own, other, nameless])
    assert [(row.session, list(entries(row)), row.late) for row in rows] == [
        (str(SESSION), [(1, 5)], 0),
        (str(OTHER), [(4, 6)], 1),  # the earlier rows of that session are unknown here
    ]


def test_each_topic_and_partition_has_its_own_rows():
    items = [acked(seq, seq, topic=topic, partition=number) for seq, (topic, number) in enumerate([("a", 0), ("a", 1), ("b", 0), ("a", 0)])]  # fmt: skip
    assert {(row.topic, row.partition): [seq for seq, _ in entries(row)] for row in ledger_rows_of(items)} == {
        ("a", 0): [0, 3], ("a", 1): [1], ("b", 0): [2],
    }  # fmt: skip


@pytest.mark.slow
def test_a_ledger_that_is_taken_late_keeps_everything():
    ledger, count = AckLedger(SESSION.bytes), 200_000
    for start in range(0, count, 1000):
        ledger.acknowledged([acked(seq, seq + 7) for seq in range(start, start + 1000)])
    rows, _ = ledger.take()
    assert (sum(row.count for row in rows), len(rows), any(row.late for row in rows)) == (count, 49, False)
    assert ledger.take() == ((), ())


def test_two_threads_may_add_acknowledgements_while_a_third_takes_them():
    ledger, rows = AckLedger(SESSION.bytes), []

    def acknowledge(partition):
        for start in range(0, 20_000, 100):
            ledger.acknowledged([acked(seq, seq, partition=partition) for seq in range(start, start + 100)])

    threads = [threading.Thread(target=acknowledge, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rows += ledger.take()[0]
    rows += ledger.take()[0]
    acknowledgements = sorted((row.partition, seq) for row in rows for seq, _ in entries(row))
    assert acknowledgements == [(number, seq) for number in (0, 1) for seq in range(20_000)]


def test_a_message_that_was_given_up_has_a_row_with_its_verdict():
    ledger = AckLedger(SESSION.bytes)
    ledger.died(dead_letter(7, code="MSG_SIZE_TOO_LARGE", verdict="not_sent"))
    _, (row,) = ledger.take()
    assert (f"{row.session}-{row.seq}", row.code, row.verdict) == (dead_letter(7).message_id, "MSG_SIZE_TOO_LARGE", "not_sent")  # fmt: skip


def test_the_store_keeps_a_ledger_once_and_prunes_it(tmp_path):
    store = Store.open(tmp_path / "store.duckdb", clock=lambda: 1000.0)
    rows = ledger_rows([Acked(SESSION, seq, "orders", 0, 5 + seq) for seq in range(4090, 4100)])
    batch = Batch("p", 3, ledger=rows, given_up=(given_up(SESSION, 3, "orders"),))
    assert store.append(batch) and not store.append(batch)

    with store.borrow() as connection:
        found = connection.execute(
            "SELECT first_window, count, list_sum(seqs[1:1]), list_aggregate(seqs, 'sum'), len(offs), fp FROM ledger ORDER BY 1"
        ).fetchall()
    assert found == [(0, 6, 4090, 4095, 6, rows[0].fp), (1, 4, 4096, 4099, 4, rows[1].fp)]
    store.prune(4_000_000_000.0)
    with store.borrow() as connection:
        assert connection.execute("SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM ledger_given_up)").fetchone() == (0, 0)  # fmt: skip


def test_a_message_of_an_earlier_start_is_in_the_ledger_under_its_own_session(tmp_path):
    ledger = AckLedger(SESSION.bytes, first=100)
    ledger.acknowledged([acked(7, 3, session=OTHER), acked(100, 4), acked(101, 5)])
    rows, _ = ledger.take()
    assert {(row.session, tuple(entries(row))) for row in rows} == {
        (str(OTHER), ((7, 3),)),
        (str(SESSION), ((100, 4), (101, 5))),
    }

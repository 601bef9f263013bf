"""The merge of a micro-batch: a batch counts once under both keys, whatever is repeated."""

from __future__ import annotations

from typing import get_type_hints

import pyarrow as pa
import pytest

from producer_core.errors import StoreError
from producer_core.pipeline.merging import committed, merge, unseen
from producer_core.store import ErrorRow, LatencyRow, ProducerRow, StatisticsRow, Store

IDS = pa.schema([("producer_id", pa.string()), ("sequence", pa.int64())])
TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
NO_HEARTBEATS = pa.table(
    {
        name: pa.array([], TYPES.get(hint, pa.string()) if name[-3:] != "_at" else pa.float64())
        for name, hint in get_type_hints(ProducerRow).items()
    }
)


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


def tables(*ids):
    """What Spark hands over for batches of ten messages each."""

    def flat(kind, values):
        columns = ("batch_producer", "batch_sequence", *kind._fields)
        rows = [dict(zip(columns, (*of, *values(*of)), strict=True)) for of in ids]
        return pa.Table.from_pylist(rows) if rows else pa.table({name: [] for name in columns})

    return {
        "ids": pa.Table.from_pylist([{"producer_id": p, "sequence": s} for p, s in ids], IDS),
        "statistics": flat(
            StatisticsRow, lambda p, s: (100 + s, "c", p, "orders", 10, 9, 1, 1, 0, 0, 0, 0, 90, 0.5)
        ),
        "latencies": flat(LatencyRow, lambda p, s: (100 + s, "c", p, "orders", 42, 9)),
        "errors": flat(ErrorRow, lambda p, s: (100 + s, "c", p, "orders", "X", "permanent", 1)),
        "producers": NO_HEARTBEATS,
    }


def totals(store):
    with store.borrow() as connection:
        sums = "SELECT (SELECT sum(accepted) FROM statistics), (SELECT sum(count) FROM latencies), (SELECT sum(count) FROM errors)"
        return tuple(int(number or 0) for number in connection.execute(sums).fetchone())


def ranges(store):
    with store.borrow() as connection:
        return connection.execute("SELECT * FROM merged_batches ORDER BY ALL").fetchall()


def test_batches_add_up(store):
    assert merge(store, tables(("p1", 0), ("p1", 1), ("p2", 0)), query_id="q", batch_id=0, now=1.0) == 3
    assert totals(store) == (30, 27, 3)


def test_a_micro_batch_that_spark_repeats_adds_nothing(store):
    given = tables(("p1", 0))
    merge(store, given, query_id="q", batch_id=0, now=1.0)

    assert merge(store, tables(("p1", 1)), query_id="q", batch_id=0, now=2.0) == 0
    assert totals(store) == (10, 9, 1)
    assert committed(store, query_id="q", batch_id=0)
    assert not committed(store, query_id="q", batch_id=1)


def test_a_batch_that_a_lost_checkpoint_brings_again_adds_nothing(store):
    merge(store, tables(("p1", 0), ("p1", 1)), query_id="q", batch_id=0, now=1.0)

    assert merge(store, tables(("p1", 1), ("p1", 2)), query_id="another", batch_id=0, now=2.0) == 1
    assert totals(store) == (30, 27, 3)


def test_what_is_remembered_is_ranges_that_grow_together(store):
    merge(store, tables(("p1", 0), ("p1", 1), ("p1", 4)), query_id="q", batch_id=0, now=1.0)
    assert ranges(store) == [("p1", 0, 1), ("p1", 4, 4)]

    merge(store, tables(("p1", 3), ("p1", 2), ("p2", 7)), query_id="q", batch_id=1, now=2.0)
    assert ranges(store) == [("p1", 0, 4), ("p2", 7, 7)]


def test_the_unseen_are_those_that_no_range_holds(store):
    merge(store, tables(("p1", 0), ("p1", 1)), query_id="q", batch_id=0, now=1.0)
    asked = tables(("p1", 1), ("p1", 2), ("p2", 1))["ids"]

    found = unseen(store, asked).to_pylist()

    assert sorted((row["producer_id"], row["sequence"]) for row in found) == [("p1", 2), ("p2", 1)]


def test_a_failed_merge_says_why_and_leaves_nothing(store):
    broken = tables(("p1", 0)) | {"errors": pa.table({"batch_producer": ["p1"], "batch_sequence": [0]})}

    with pytest.raises(StoreError, match="window_start"):
        merge(store, broken, query_id="q", batch_id=0, now=1.0)

    assert totals(store) == (0, 0, 0)
    assert merge(store, tables(("p1", 0)), query_id="q", batch_id=0, now=2.0) == 1

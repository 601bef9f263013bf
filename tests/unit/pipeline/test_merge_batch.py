"""The merge of a micro-batch: a batch counts once under both keys, however often it is repeated and however late."""

from __future__ import annotations

import pyarrow as pa
import pytest

from producer_core.errors import StoreError
from producer_core.pipeline.merge_batch import SupersededBatch, merge, missing, unseen
from producer_core.store import Batch, Store
from tests.fixtures.telemetry_batches import NOW, batches, micro_batch

HOUR, DAY = 3600, 86400


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


def put(store, given, batch_id=0, query_id="q"):
    fresh = unseen(store, given)
    return merge(store, fresh, record=micro_batch(query_id, batch_id, 1.0))


def totals(store):
    with store.borrow() as connection:
        sums = "SELECT (SELECT sum(accepted) FROM statistics), (SELECT sum(count) FROM latencies), (SELECT sum(count) FROM errors)"
        return tuple(int(number or 0) for number in connection.execute(sums).fetchone())


def ranges(store):
    return query(store, "SELECT * FROM merged_batches ORDER BY ALL")


def query(store, sql):
    with store.borrow() as connection:
        return connection.execute(sql).fetchall()


def test_batches_add_up(store):
    assert put(store, batches(("p1", 0), ("p1", 1), ("p2", 0))) == 3
    assert totals(store) == (30, 27, 3)


def test_a_batch_that_occurs_twice_in_a_micro_batch_counts_once(store):
    assert put(store, batches(("p1", 0), ("p1", 0))) == 1
    assert totals(store) == (10, 9, 1)


def test_a_micro_batch_that_spark_repeats_adds_nothing(store):
    put(store, batches(("p1", 0)))

    assert put(store, batches(("p1", 0))) == 0
    assert totals(store) == (10, 9, 1)
    assert query(store, "SELECT query_id, batch_id FROM pipeline_progress") == [("q", 0)]


def test_a_checkpoint_restored_from_a_copy_reuses_a_number_and_nothing_is_lost(store):
    put(store, batches(("p1", 0)), batch_id=7)

    assert put(store, batches(("p1", 1)), batch_id=7) == 1
    assert totals(store) == (20, 18, 2)


def test_a_batch_read_again_after_a_lost_checkpoint_adds_nothing(store):
    put(store, batches(("p1", 0), ("p1", 1)))

    assert put(store, batches(("p1", 1), ("p1", 2)), query_id="another") == 1
    assert totals(store) == (30, 27, 3)


def test_merged_batches_are_stored_as_contiguous_ranges(store):
    put(store, batches(("p1", 0), ("p1", 1), ("p1", 4)))
    assert ranges(store) == [("p1", 0, 1), ("p1", 4, 4)]

    put(store, batches(("p1", 3), ("p1", 2), ("p2", 7)), batch_id=1)
    assert ranges(store) == [("p1", 0, 4), ("p2", 7, 7)]


def test_a_batch_that_covers_several_numbers_leaves_no_gap(store):
    put(store, batches(("p1", 0), ("p1", 1, 5), ("p1", 6)))

    assert ranges(store) == [("p1", 0, 6)]
    assert missing(store) == (0, 0)


def test_gaps_are_counted_until_they_are_filled(store):
    put(store, batches(("p1", 0), ("p1", 4), ("p2", 0), ("p3", 5), ("p3", 7)))
    assert missing(store) == (2, 4)

    put(store, batches(("p1", 1), ("p1", 2), ("p1", 3), ("p3", 6)), batch_id=1)
    assert missing(store) == (0, 0)


def test_a_batch_merged_by_another_job_in_between_is_checked_again(store):
    fresh = unseen(store, batches(("p1", 0), ("p1", 1)))
    store.append(Batch("p1", 0))

    with pytest.raises(SupersededBatch):
        merge(store, fresh, record=micro_batch("q", 0, 1.0))

    assert totals(store) == (0, 0, 0)
    assert put(store, fresh) == 1
    assert totals(store) == (10, 9, 1)


def test_a_late_heartbeat_changes_nothing(store):
    put(store, batches(("p1", 9)))
    put(store, batches(("p1", 3)), batch_id=1)

    assert query(store, "SELECT producer_id, seen_at FROM producers") == [("p1", NOW + 9.0)]


def test_the_later_of_two_heartbeats_counts(store):
    put(store, batches(("p1", 3), ("p1", 9), ("p2", 1)))

    found = query(store, "SELECT producer_id, seen_at FROM producers ORDER BY ALL")
    assert found == [("p1", NOW + 9.0), ("p2", NOW + 1.0)]


def test_heartbeats_count_after_a_producers_clock_was_set_back(store):
    put(store, batches(("p1", 3), at=NOW + DAY))
    put(store, batches(("p1", 4)), batch_id=1)

    assert query(store, "SELECT seen_at FROM producers") == [(NOW + 4.0,)]


@pytest.mark.slow
@pytest.mark.parametrize("late", [HOUR, 4 * HOUR, DAY, 10 * DAY])
def test_a_late_batch_is_added_to_windows_that_are_rolled_up(store, late):
    at = NOW - late
    put(store, batches(("p1", 0), at=at))
    store.maintain(NOW)
    before = query(store, "SELECT DISTINCT resolution FROM statistics")

    put(store, batches(("p1", 1), ("p2", 0), at=at), batch_id=1)
    assert totals(store) == (30, 27, 3)
    store.maintain(NOW + 60)

    assert totals(store) == (30, 27, 3)
    assert query(store, "SELECT DISTINCT resolution FROM statistics") == before
    by_window = "SELECT sum(accepted) FROM statistics GROUP BY window_start // 3600, producer_id ORDER BY ALL"
    assert query(store, by_window) == [(10,), (20,)]


@pytest.mark.slow
def test_a_batch_beyond_the_stores_retention_is_pruned_and_not_merged_again(store):
    put(store, batches(("p1", 0), at=NOW - 100 * DAY))
    store.maintain(NOW)

    assert put(store, batches(("p1", 0), at=NOW - 100 * DAY), batch_id=1) == 0
    assert totals(store) == (0, 0, 0)


def test_the_number_of_remembered_micro_batches_is_bounded(store):
    put(store, batches(("p1", 0)), batch_id=1)
    put(store, batches(("p1", 1)), batch_id=1_999)
    put(store, batches(("p1", 2)), batch_id=2_000)

    assert query(store, "SELECT batch_id FROM pipeline_progress ORDER BY ALL") == [(1_999,), (2_000,)]


def test_a_failed_merge_has_a_reason_and_leaves_nothing(store):
    whole = batches(("p1", 0))
    rows = pa.array([[{"window_start": NOW}]])  # and no other column
    broken = whole.set_column(whole.schema.get_field_index("errors"), "errors", rows)

    with pytest.raises(StoreError, match="cluster_id"):
        merge(store, broken, record=micro_batch("q", 0, 1.0))

    assert totals(store) == (0, 0, 0)
    assert put(store, batches(("p1", 0))) == 1


def test_a_merge_that_is_killed_inside_its_transaction_leaves_nothing(store):
    def killed(point):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(store, batches(("p1", 0)), record=micro_batch("q", 0, 1.0), reached=killed)

    assert totals(store) == (0, 0, 0)
    assert ranges(store) == []

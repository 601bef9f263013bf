"""Rollup and pruning: sums are the same at every resolution."""

from __future__ import annotations

import random

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.events import Notice
from producer_core.store import Batch, ErrorRow, LatencyRow, StatisticsRow, Store
from tests.fixtures.dead_letters import dead_letter

HOUR, DAY = 3600, 86400
NOW = 1_800_000_000 // HOUR * HOUR + 1234


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def fill(store, ages):
    rng = random.Random(7)
    statistics, latencies, errors = [], [], []
    for age in ages:
        for topic in ("orders", "refunds"):
            where = (NOW - age, "c", "p", topic)
            statistics.append(
                StatisticsRow(*where, *(rng.randrange(100) for _ in range(9)), rng.randrange(8) / 4)
            )
            latencies.append(LatencyRow(*where, rng.randrange(5), rng.randrange(9)))
            errors.append(ErrorRow(*where, rng.choice("XY"), "local", rng.randrange(9)))
    store.append(Batch("p", 0, tuple(statistics), tuple(latencies), tuple(errors)))


def answers(store, **span):
    return [
        store.rows(name, **span) for name in ("totals", "totals_by_topic", "latency_buckets_by_topic")
    ] + [errors(store, **span)]


def errors(store, since=0, until=NOW + 1):
    with store.borrow() as connection:
        return connection.execute(
            "SELECT topic, code, kind, sum(count) FROM errors WHERE window_start >= ? AND window_start < ? "
            "GROUP BY ALL ORDER BY ALL",
            (since, until),
        ).fetchall()


def resolutions(store, table="statistics"):
    with store.borrow() as connection:
        return dict(connection.execute(f"SELECT resolution, count(*) FROM {table} GROUP BY 1").fetchall())


def test_old_seconds_become_minutes_and_old_minutes_hours_with_the_same_sums(store):
    fill(store, [*range(0, 3 * HOUR, 97), *range(3 * DAY, 5 * DAY, 1801)])
    before = answers(store)

    assert store.rollup(NOW) > 0

    assert set(resolutions(store)) == {1, 60, 3600}
    assert answers(store) == before
    for table in ("statistics", "latencies", "errors"):
        assert resolutions(store, table).keys() == {1, 60, 3600}


def test_a_range_from_a_window_start_is_exact_over_mixed_resolutions(store):
    fill(store, range(0, 4 * HOUR, 61))
    since, until = (NOW - 3 * HOUR) // 60 * 60, NOW - HOUR
    before = answers(store, since=since, until=until)

    store.rollup(NOW)

    assert set(resolutions(store)) == {1, 60}
    assert answers(store, since=since, until=until) == before


def test_a_series_over_coarse_rows_has_the_seconds_that_they_cover(store):
    fill(store, [3 * HOUR, 3 * HOUR + 1, 10])
    store.rollup(NOW)

    seconds = {row["seconds"] for row in store.rows("series", bucket=10)}

    assert seconds == {10, 60}


def test_a_second_rollup_has_no_effect(store):
    fill(store, range(0, 4 * HOUR, 61))
    store.rollup(NOW)
    size = store.path.stat().st_mtime_ns

    assert store.rollup(NOW) == 0
    assert store.path.stat().st_mtime_ns == size


@pytest.mark.slow
def test_late_rows_are_rolled_up_beside_the_others(store):
    fill(store, [3 * HOUR])
    store.rollup(NOW)
    store.append(Batch("p", 1, (StatisticsRow(NOW - 3 * HOUR, "c", "p", "orders", *[1] * 10),)))
    before = store.rows("totals")

    assert store.rollup(NOW) == 1
    assert store.rows("totals") == before


def test_pruning_deletes_rows_past_their_retention_time(store):
    fill(store, [10, 89 * DAY, 91 * DAY])
    store.append(
        Batch("p", 1, notices=(Notice("old", "info", "x", NOW - 91 * DAY), Notice("new", "info", "x", NOW)))
    )
    store.rollup(NOW)

    assert store.prune(NOW) > 0

    assert store.info().oldest >= NOW - 90 * DAY
    with store.borrow() as connection:
        assert connection.execute("SELECT kind FROM notices").fetchall() == [("new",)]
    assert store.prune(NOW) == 0


@pytest.mark.slow
def test_pending_and_archived_dead_letters_are_never_pruned_but_settled_ones_after_a_month(store):
    then = DeadLetters(store, clock=lambda: NOW - 31 * DAY)
    then.add([dead_letter(1), dead_letter(2), dead_letter(3)])
    then.archive(DeadLetterFilter(message_id="m-1"), who="ada", origin="cli")
    then.claim("op", ["m-2"])
    then.settle_replayed("m-2", 0, 7)

    store.prune(NOW)

    assert {one.message_id for one in then.find(DeadLetterFilter(state=None))} == {"m-1", "m-3"}
    assert then.get("m-1").value == dead_letter(1).value
    with store.borrow() as connection:
        assert connection.execute("SELECT count(*) FROM dead_letter_bodies").fetchone() == (2,)


def test_retention_times_are_settings_of_the_store(store):
    fill(store, [30, 120])
    store.set_setting("keep_seconds", 60)

    assert store.rollup(NOW) == 6
    assert resolutions(store) == {1: 2, 60: 2}


def test_maintenance_rolls_up_and_prunes(store):
    fill(store, [3 * HOUR, 91 * DAY])

    store.maintain(NOW)

    assert resolutions(store) == {60: 2}

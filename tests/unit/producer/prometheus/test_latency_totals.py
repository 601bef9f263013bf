"""Histograms that are remembered equal those of a full read, whatever happens to the rows."""

from __future__ import annotations

import pytest

from producer_core.producer.prometheus.latency_totals import LatencyTotals
from producer_core.store import Batch, LatencyRow, Store
from tests.unit.store.test_retention import DAY, HOUR, NOW, fill


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def add(store, number, at, topic="orders", bucket=3, count=1):
    store.append(Batch("q", number, latencies=(LatencyRow(int(at), "c", "q", topic, bucket, count),)))


def read(store, totals, now):
    with store.borrow() as connection:
        return totals.read(connection, now), LatencyTotals().read(connection, now)


def test_remembered_histograms_follow_every_change_of_the_store(store):
    fill(store, [*range(0, 3 * HOUR, 97), *range(3 * DAY, 4 * DAY, 1801), *range(88 * DAY, 92 * DAY, HOUR)])
    totals, seen = LatencyTotals(), []
    changes = (
        lambda now: None,
        lambda now: add(store, 1, now),
        lambda now: store.rollup(now),
        lambda now: store.prune(now),
        lambda now: add(store, 2, now - 2 * HOUR, count=5),  # late
        lambda now: store.prune(now + DAY),
        lambda now: store.prune(now + 400 * DAY),
        lambda now: add(store, 3, now, topic="new"),
    )
    for step, change in enumerate(changes):
        now = NOW + 61 * step
        change(now)

        remembered, anew = read(store, totals, now)

        assert remembered == anew
        seen.append(sum(sum(counts.values()) for counts in remembered.values()))
    assert seen == sorted(seen)
    assert seen[-1] == seen[0] + 7


def test_a_store_that_was_replaced_is_read_again(store, tmp_path):
    add(store, 0, NOW - DAY, count=7)
    totals = LatencyTotals()
    read(store, totals, NOW)
    other = Store.open(tmp_path / "other.duckdb")
    add(other, 0, NOW - DAY, bucket=9)

    remembered, anew = read(other, totals, NOW)

    assert remembered == anew == {"orders": {9: 1}}


def test_old_rows_are_grouped_once(store):
    add(store, 0, NOW - DAY)
    totals = LatencyTotals()
    read(store, totals, NOW)
    asked = []

    class Spy:
        def __init__(self, connection):
            self.connection = connection

        def execute(self, sql, given):
            asked.append(given)
            return self.connection.execute(sql, given)

    with store.borrow() as connection:
        totals.read(Spy(connection), NOW + 1)

    assert min(given["since"] for given in asked if "since" in given) > NOW - HOUR

"""Test the events that charts mark."""

from __future__ import annotations

from producer_core.dashboard import queries
from producer_core.dashboard.queries.chart_events import MOST, ChartEvent, chart_events
from producer_core.store import Batch
from tests.fixtures.latency import client
from tests.fixtures.overview import producer

NOW = 0.0
VIEW = queries.View("15 min")


def cut_off(store, *seconds_ago, batch=0):
    rows = tuple(client(NOW - ago, samples=1, cut_off=1) for ago in seconds_ago)
    store.append(Batch("p", batch, (), (), (), producer(started_at=NOW - 5000), client_statistics=rows))


def test_an_outage_is_a_band_and_a_brief_one_is_not(store):
    cut_off(store, *range(300, 290, -1), 100, *range(60, 50, -1))
    assert chart_events(store, VIEW, NOW) == (
        ChartEvent("outage", NOW - 300, NOW - 290),
        ChartEvent("outage", NOW - 60, NOW - 50),
    )


def test_the_start_of_a_producer_is_a_moment_of_its_range(store):
    store.append(Batch("p", 0, (), (), (), producer(started_at=NOW - 30)))
    assert chart_events(store, VIEW, NOW) == (ChartEvent("start", NOW - 30, NOW - 30),)
    assert chart_events(store, queries.View("15 min", producer="other"), NOW) == ()
    assert chart_events(store, VIEW, NOW + 3600) == ()


def test_a_chart_of_many_starts_shows_none(store):
    for number in range(MOST + 1):
        row = producer(producer_id=f"p{number}", started_at=NOW - 30)
        store.append(Batch(f"p{number}", 0, (), (), (), row))
    assert chart_events(store, VIEW, NOW) == ()


def test_a_replay_is_a_band_from_its_start_until_its_end_or_now(store):
    with store.borrow(write=True) as connection:
        for name, began, ended in (("a", 500, 400), ("b", 20, None), ("c", 9000, 8000), ("d", None, None)):
            connection.execute(
                "INSERT INTO operations (operation_id, cluster_id, selection, state, who, origin, created_at, started_at,"
                " finished_at, total, acknowledged, landed, failed_again, skipped)"
                " VALUES (?, 'c', '{}', 'done', 'x', 'cli', ?, ?, ?, 1, 1, 0, 0, 0)",
                [
                    name,
                    NOW - 9500,
                    None if began is None else NOW - began,
                    None if ended is None else NOW - ended,
                ],
            )
    assert chart_events(store, VIEW, NOW) == (
        ChartEvent("replay", NOW - 500, NOW - 400),
        ChartEvent("replay", NOW - 20, NOW),
    )


def test_an_empty_store_has_no_events(store):
    assert chart_events(store, VIEW, NOW) == ()

"""Test the events that charts mark."""

from __future__ import annotations

from producer_core.dashboard import queries
from producer_core.dashboard.charts.events import shapes
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


def test_starts_that_are_too_many_for_a_line_each_are_counted_together(store):
    for number in range(MOST + 5):
        row = producer(producer_id=f"p{number}", started_at=NOW - 30 * number - 5)
        store.append(Batch(f"p{number}", 0, (), (), (), row))
    found = chart_events(store, VIEW, NOW)
    assert {event.kind for event in found} == {"start"} and len(found) <= MOST
    assert sum(event.count for event in found) == MOST + 5


def minutes(store, *rows):
    """Write rows of a minute each, as they are after the sums of seconds: start, samples and samples without a broker."""
    with store.borrow(write=True) as connection:
        for at, samples, cut_off in rows:
            row = client(at, samples=samples, cut_off=cut_off)
            connection.execute(
                f"INSERT INTO client_statistics VALUES (60, {', '.join('?' * len(row))})", list(row)
            )


def test_an_outage_keeps_its_band_after_its_seconds_are_summed_to_minutes(store):
    begin = int(NOW) // 60 * 60 - 600
    minutes(store, (begin, 60, 25), (begin + 60, 60, 60), (begin + 120, 60, 60), (begin + 180, 60, 0))
    assert chart_events(store, VIEW, NOW) == (
        ChartEvent("partial", begin, begin + 60),
        ChartEvent("outage", begin + 60, begin + 180),
    )


def test_a_minute_is_no_outage_where_a_producer_ran_only_for_seconds_of_it(store):
    begin = int(NOW) // 60 * 60 - 600
    minutes(store, (begin, 5, 5), (begin + 300, 60, 2))
    assert chart_events(store, VIEW, NOW) == (ChartEvent("partial", begin, begin + 60),)


def test_a_minute_is_partial_where_another_producer_had_a_broker(store):
    begin = int(NOW) // 60 * 60 - 600
    minutes(store, (begin, 120, 60))
    assert chart_events(store, VIEW, NOW) == (ChartEvent("partial", begin, begin + 60),)


def test_seconds_in_which_another_producer_had_a_broker_are_no_event(store):
    rows = tuple(client(NOW - ago, samples=2, cut_off=1) for ago in range(300, 290, -1))
    store.append(Batch("p", 0, (), (), (), producer(started_at=NOW - 5000), client_statistics=rows))
    assert chart_events(store, VIEW, NOW) == ()


def add_replay(store, name, began, ended=None, *, state="done", cluster="c", leased=None):
    with store.borrow(write=True) as connection:
        connection.execute(
            "INSERT INTO operations (operation_id, cluster_id, selection, state, who, origin, created_at, started_at,"
            " finished_at, lease_until, total, acknowledged, landed, failed_again, skipped)"
            " VALUES (?, ?, '{}', ?, 'x', 'cli', ?, ?, ?, ?, 1, 1, 0, 0, 0)",
            [name, cluster, state, NOW - 9500, began, ended, leased],
        )


def test_a_replay_is_a_band_from_its_start_until_its_end_or_now(store):
    add_replay(store, "a", NOW - 500, NOW - 400)
    add_replay(store, "b", NOW - 20, state="running", leased=NOW + 30)
    add_replay(store, "c", NOW - 9000, NOW - 8000)
    add_replay(store, "d", None)
    assert chart_events(store, VIEW, NOW) == (
        ChartEvent("replay", NOW - 500, NOW - 400),
        ChartEvent("replay", NOW - 20, NOW),
    )


def test_events_of_any_time_are_drawn_within_the_range(store):
    add_replay(store, "far", NOW - 9000, 1e20)
    assert chart_events(store, VIEW, NOW) == (ChartEvent("replay", VIEW.since(NOW), NOW),)
    assert shapes(chart_events(store, VIEW, NOW), VIEW.since(NOW), NOW)


def test_a_replay_that_does_not_run_is_no_band_until_now(store):
    add_replay(store, "paused", NOW - 500, state="paused")
    add_replay(store, "its runner died", NOW - 500, state="running", leased=NOW - 100)
    assert chart_events(store, VIEW, NOW) == ()


def test_a_replay_to_another_cluster_is_no_event_of_the_selected_one(store):
    add_replay(store, "a", NOW - 500, NOW - 400)
    assert chart_events(store, queries.View("15 min", cluster="other"), NOW) == ()
    assert len(chart_events(store, queries.View("15 min", cluster="c"), NOW)) == 1


def test_the_start_of_a_dashboard_that_runs_replays_is_no_event(store):
    row = producer(started_at=NOW - 30, client_id="producer-core-dashboard")
    store.append(Batch("p", 0, (), (), (), row))
    assert chart_events(store, VIEW, NOW) == ()


def test_an_empty_store_has_no_events(store):
    assert chart_events(store, VIEW, NOW) == ()

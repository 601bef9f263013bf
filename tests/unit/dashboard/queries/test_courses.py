"""Test the values of the tiles' sparklines."""

from __future__ import annotations

from producer_core.dashboard import queries
from producer_core.dashboard.queries.courses import courses
from producer_core.dashboard.queries.topics import Point
from tests.fixtures.overview import counts, shop, write

NOW = 0.0


def test_topics_are_summed_and_windows_without_data_stay_empty():
    series = [Point(10, 10, "a", 30, 0, 0), Point(10, 10, "b", 60, 10, 0), Point(30, 10, "a", 0, 0, 0)]

    found = courses(series, {10: (0.1, 0.2)}, since=10, until=45, step=10)

    assert found.throughput == (9.0, None, 0.0)
    assert found.error_rate == (0.1, None, None)
    assert found.dead == (10, None, 0)
    assert found.percentile(1) == (0.2, None, None)


def test_the_current_window_is_left_out_because_it_is_incomplete():
    found = courses([Point(10, 10, "a", 30, 0, 0)], {}, since=0, until=15, step=10)
    assert found.throughput == (None,)


def test_the_charts_of_a_young_store_begin_with_its_data(store):
    """Once a store of ten minutes opened with charts that were mostly empty."""
    shop(store)
    page = queries.overview(store, "15 min", NOW)
    assert NOW - 60 - page.step <= page.begin <= NOW - 60
    assert None not in page.courses.throughput


def test_the_charts_of_an_older_store_cover_the_whole_range(store):
    shop(store)
    write(store, [counts(NOW - 1200, acknowledged=1)])
    page = queries.overview(store, "15 min", NOW)
    assert page.begin == page.since
    assert None in page.courses.throughput


def test_the_charts_of_an_empty_store_cover_the_range(store):
    page = queries.overview(store, "15 min", NOW)
    assert page.begin == page.since
    assert set(page.courses.throughput) == {None}

"""Test that every page measures the throughput over the same time."""

from __future__ import annotations

import pytest

from producer_core.dashboard import queries
from producer_core.dashboard.queries.fleet import fleet
from producer_core.dashboard.queries.throughput import throughput_span
from producer_core.dashboard.queries.view import View
from tests.fixtures.overview import counts, write

NOW = 0.0


def test_the_span_is_the_last_minute_whose_counts_are_in_the_store():
    span = throughput_span(View("15 min"), 1_000.5)
    assert (span.since, span.until, span.seconds) == (938, 998, 60)


def test_the_span_of_a_past_range_is_the_range():
    span = throughput_span(View("Custom", start=100, end=400), 1_000.0)
    assert (span.since, span.until, span.seconds) == (100, 400, 300)


@pytest.mark.parametrize("past", [False, True])
def test_the_overview_and_the_fleet_show_the_same_throughput(store, past):
    rows = [counts(at, "orders", acknowledged=at % 7) for at in range(int(NOW) - 600, int(NOW))]
    write(store, rows)
    view = View("Custom", start=int(NOW) - 500, end=int(NOW) - 200) if past else View("15 min")
    page, all_of_them = queries.overview(store, view, NOW), fleet(store, view, NOW)
    assert page.throughput == pytest.approx(all_of_them.rate) and page.throughput > 1
    assert sum(row.throughput for row in page.topics) == pytest.approx(page.throughput)
    assert sum(member.rate for member in all_of_them.members) == pytest.approx(page.throughput)

"""Test the charts of the errors page."""

from __future__ import annotations

import pytest

from producer_core.dashboard.charts.errors import colours, failed_attempts, outcomes
from producer_core.dashboard.queries.errors import errors
from producer_core.dashboard.queries.view import RANGES, View
from tests.fixtures.errors import fill

NOW = 0.0


@pytest.mark.slow
@pytest.mark.parametrize("window", RANGES)
def test_every_range_is_drawn(store, window):
    fill(store)
    store.rollup(NOW + 3 * 3600)
    page = errors(store, View(window), NOW)
    assert sum(sum(trace.y) for trace in failed_attempts(page).data) == page.whole.attempts
    assert sum(sum(trace.y) for trace in outcomes(page).data) == page.whole.dead + page.whole.saved


def test_a_code_keeps_its_colour_when_others_appear():
    few, more = colours(["A", "_TIMED_OUT"]), colours(["A", "B", "C", "_TIMED_OUT"])
    assert few["A"] == more["A"]
    assert len(set(colours([f"C{number}" for number in range(8)]).values())) == 8

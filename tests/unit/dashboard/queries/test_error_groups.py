"""Test the data of one group of dead letters."""

from __future__ import annotations

from dataclasses import replace

from producer_core.dashboard.charts.errors import group_trend
from producer_core.dashboard.queries.error_groups import error_group
from producer_core.dashboard.queries.view import View
from tests.fixtures.errors import POLICY, fill
from tests.fixtures.pages import VIEW

NOW = 0.0


def test_a_group_has_counts_states_and_a_trend(store):
    fill(store)
    page = error_group(store, POLICY, VIEW, NOW)
    assert (page.ever.count, page.inside.count, page.before, dict(page.states)) == (4, 2, 2, {"dead": 4})
    assert not page.new
    assert sum(group_trend(page).data[0].y) == 2
    assert error_group(store, "missing", VIEW, NOW) is None
    assert error_group(store, POLICY, replace(VIEW, application="another"), NOW) is None
    assert error_group(store, POLICY, replace(VIEW, application=""), NOW) == page


def test_a_group_without_recent_failures_is_drawn_over_its_whole_time(store):
    fill(store)
    page = error_group(store, POLICY, View("Custom", start=int(NOW) - 10, end=int(NOW)), NOW)
    assert page.inside is None
    assert sum(group_trend(page).data[0].y) == 4

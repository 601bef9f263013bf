"""Test the view of a page: time range, filters and address."""

from __future__ import annotations

import pytest

from producer_core.dashboard import queries, wording
from producer_core.dashboard.queries.view import STEPS, step_of

NOW = 0.0


def test_an_address_carries_a_time_range_in_seconds_and_malformed_values_are_ignored():
    assert queries.chosen("100", "400", NOW) == (100, 400)
    assert queries.chosen("400", "100", NOW) == (100, 400)
    assert queries.chosen("100.7", None, 500.0) == (100, 500)
    assert queries.chosen(None, "7200", NOW) == (3600, 7200)
    assert queries.chosen("100", "100", NOW) == (100, 110)
    for nonsense in ("yesterday", "-5", "1e400", "nan", "", None):
        assert queries.chosen(nonsense, None, NOW) is None


def test_a_custom_range_is_past_once_its_end_has_passed():
    view = queries.View(wording.CUSTOM, start=1000, end=4600)
    assert (view.seconds, view.since(9e9), view.until(9e9), view.at(9e9)) == (3600, 990, 4600, 4600.0)
    assert view.over(4600.0)
    assert (view.until(2000.0), view.at(2000.0), view.over(2000.0)) == (None, 2000.0, False)


@pytest.mark.parametrize("window", queries.RANGES)
def test_the_previous_period_ends_where_the_range_begins_and_has_its_length(window):
    view = queries.View(window)
    since, until = view.before(NOW)
    assert until == view.since(NOW)
    assert until - since == int(NOW) - view.since(NOW)


def test_an_address_omits_default_values():
    assert queries.View().query == {}
    assert queries.View("1 hour", "payments").query == {"topic": "payments", "range": "1 hour"}
    assert queries.View(wording.CUSTOM, start=5, end=25).query == {"since": "5", "until": "25"}
    assert queries.View(application="checkout", cluster="c").query == {
        "application": "checkout",
        "cluster": "c",
    }
    assert queries.View(application="").query == {"application": "(none)"}


def test_past_ranges_refresh_less_often():
    assert queries.refresh(queries.View("5 min"), NOW) == 1.0
    assert queries.refresh(queries.View("24 hours"), NOW) == 5.0
    assert queries.refresh(queries.View(wording.CUSTOM, start=0, end=60), NOW) == 10.0


@pytest.mark.parametrize(
    ("seconds", "step"), [(0, 1), (150, 1), (151, 2), (300, 2), (86_400, 600), (10**12, STEPS[-1])]
)
def test_a_chart_has_the_smallest_windows_that_fit(seconds, step):
    assert step_of(seconds) == step

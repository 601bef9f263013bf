"""Test the sparklines."""

from __future__ import annotations

from producer_core.dashboard import charts as dashboard_charts


def test_a_sparkline_has_gaps_for_missing_data_and_bars_for_failures():
    drawn = dashboard_charts.spark((1.0, 2.0, None, 3.0), (0, 4, None, 0), "orders")
    assert [child[0] for child in drawn[2]] == ["path", "path", "rect"]
    assert drawn[1]["aria-label"] == "orders"
    assert not dashboard_charts.spark((None, None), (None, None), "idle")[2]
    assert not dashboard_charts.spark((), (), "none")[2]


def test_a_single_second_between_gaps_is_a_short_dash():
    (path,) = dashboard_charts.spark((None, 2.0, None), (), "orders")[2]
    assert path[1]["d"] == "M66.0 1.5h22.0"


def test_a_line_of_zeros_runs_along_the_bottom():
    (path,) = dashboard_charts.spark((0.0, 0.0), (0, 0), "idle")[2]
    assert path[1]["d"] == "M33.0 22.5L99.0 22.5"


def test_bars_are_in_proportion_and_one_failure_among_many_is_visible():
    _, few, many = dashboard_charts.spark((1.0, 1.0), (1, 10**12), "orders")[2]
    assert (few[1]["height"], many[1]["height"]) == ("3.0", "7.0")
    assert (few[1]["y"], many[1]["y"]) == ("21.0", "17.0")


def test_bars_without_a_line_use_the_whole_height_and_width():
    few, many = dashboard_charts.spark((), (1, 10**12), "dead letters")[2]
    assert (few[1]["height"], many[1]["height"]) == ("3.0", "24.0")
    assert (few[1]["x"], many[1]["x"]) == ("0.0", "66.0")

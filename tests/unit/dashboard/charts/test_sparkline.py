"""Test the sparklines."""

from __future__ import annotations

from producer_core.dashboard import charts as dashboard_charts


def test_a_sparkline_has_gaps_for_missing_data_and_bars_for_failures():
    drawn = dashboard_charts.spark((1.0, 2.0, None, 3.0), (0, 4, None, 0), "orders")
    assert [child[0] for child in drawn[2]] == ["path", "path", "rect"]
    assert drawn[1]["aria-label"] == "orders"
    assert not dashboard_charts.spark((None, None), (None, None), "idle")[2]
    assert not dashboard_charts.spark((), (), "none")[2]

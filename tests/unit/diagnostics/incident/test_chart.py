"""The chart of a bundle's page."""

from __future__ import annotations

import re

import pytest

from producer_core.diagnostics.incident import chart


def row(at, acknowledged, dead=0):
    return {"window_start": at, "acknowledged": acknowledged, "dead": dead}


def test_bars_of_one_window_are_summed_and_failed_messages_are_on_top():
    drawn = chart.bars([row(100, 30), row(100, 20, 50), row(110, 10)], 100, 120, 10)
    heights = [float(one) for one in re.findall(r' height="([\d.]+)" fill', drawn)]
    assert heights == pytest.approx([59, 59, 11.8], abs=0.1)
    assert "at most 100" in drawn
    assert drawn.count("#dc2626") == 1


def test_a_range_without_messages_has_an_empty_chart():
    assert "<rect" not in chart.bars([], 100, 200, 1)


@pytest.mark.parametrize(("seconds", "step"), [(10, 1), (150, 1), (151, 2), (86_400, 576)])
def test_a_chart_has_about_150_bars(seconds, step):
    assert chart.bar_seconds(seconds) == step

"""Test the parts that all charts share."""

from __future__ import annotations

import pytest

from producer_core.dashboard.charts import chart


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        ([1.0, 2.0, None, 3.0, 4.0], "lines"),
        ([1.0, None, 3.0, 4.0], "lines+markers"),
        ([None, 1.0, None], "lines+markers"),
        ([1.0], "lines+markers"),
        ([None, None], "lines"),
        ([], "lines"),
    ],
)
def test_only_a_value_between_gaps_is_drawn_as_a_marker(found, seen):
    assert chart.mode(found) == seen


@pytest.mark.parametrize(
    ("now", "step", "end"), [(109.9, 1, 109), (109.9, 10, 100), (109.9, 60, 109), (0.0, 1, 0)]
)
def test_short_windows_end_before_the_incomplete_one(now, step, end):
    assert chart.ends(now, step) == end


def test_a_figure_without_values_has_a_default_axis():
    figure = chart.blank("x")
    assert chart.values(figure) == []
    assert chart.decades(figure) == [0, 1]
    assert chart.top(figure, 5.0) == 5.0


@pytest.mark.parametrize(
    ("values", "decades"), [([1.0], [0, 1]), ([0.5, None, 20.0], [-1, 2]), ([1e-9, 1e12], [-9, 12])]
)
def test_the_axis_covers_all_values_with_powers_of_ten(values, decades):
    figure = chart.blank("x")
    figure.add_scatter(x=list(range(len(values))), y=values)
    assert chart.decades(figure) == decades
    assert chart.top(figure, 0.0) == pytest.approx(1.08 * max(value for value in values if value is not None))


def test_a_message_replaces_the_lines_and_the_axes():
    figure = chart.blank("x")
    figure.add_scatter(x=[1], y=[2])
    drawn = chart.message(figure, "No data.")
    assert (len(drawn.data), drawn.layout.annotations[0].text) == (0, "No data.")
    assert not drawn.layout.xaxis.visible and not drawn.layout.yaxis.visible

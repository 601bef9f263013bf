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

"""Test the chart of an alert's metric."""

from __future__ import annotations

from dataclasses import replace

from producer_core.dashboard.charts.alert_metric import alert_metric, marks
from producer_core.dashboard.queries.alert_metric import AlertMetric

PAGE = AlertMetric(
    metric="error_rate", since=0, now=600.0, lines={"1 h": ((0, 0.5), (60, None)), "5 min": ((0, 0.25), (60, 0.0))},
    threshold=0.0144, above=True, fired_at=60.0, ended_at=1e12,
)  # fmt: skip


def test_the_threshold_is_a_line_over_the_whole_range():
    long, short, threshold = alert_metric(PAGE).data
    assert (list(long.y), list(short.y), list(threshold.y)) == ([50.0, None], [25.0, 0.0], [1.44, 1.44])
    assert (long.name, threshold.name) == ("over 1 h", "threshold: above 1.44%")
    assert [at.timestamp() for at in threshold.x] == [0.0, 600.0]


def test_a_threshold_above_all_values_is_within_the_axis():
    figure = alert_metric(replace(PAGE, threshold=0.9))
    assert figure.layout.yaxis.range[1] > 90.0


def test_a_metric_without_values_says_so():
    figure = alert_metric(replace(PAGE, lines={"1 h": ((0, None),)}))
    assert figure.layout.annotations[0].text == "No statistics of this time are in the store."


def test_the_time_for_which_the_alert_fires_is_a_band_within_the_range():
    (band,) = marks(PAGE)
    assert (band["x0"], band["x1"]) == ("1970-01-01T00:01:00+00:00", "1970-01-01T00:10:00+00:00")

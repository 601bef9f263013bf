"""Test the marks of events on charts."""

from __future__ import annotations

from producer_core.dashboard.charts.events import shapes
from producer_core.dashboard.queries.chart_events import ChartEvent


def test_outages_and_replays_are_bands_and_a_start_is_a_line():
    outage, start, replay = shapes(
        [ChartEvent("outage", 0.0, 60.0), ChartEvent("start", 60.0, 60.0), ChartEvent("replay", 90.0, 95.0)]
    )
    assert (outage["type"], start["type"], replay["type"]) == ("rect", "line", "rect")
    assert (outage["x0"], outage["x1"]) == ("1970-01-01T00:00:00.000+00:00", "1970-01-01T00:01:00.000+00:00")
    assert outage["fillcolor"] != replay["fillcolor"]
    assert {shape["layer"] for shape in (outage, start, replay)} == {"below"}


def test_only_the_latest_event_of_a_kind_has_a_label():
    first, second = shapes([ChartEvent("outage", 0.0, 9.0), ChartEvent("outage", 50.0, 59.0)])
    assert "label" not in first and second["label"]["text"] == "no broker"


def test_a_chart_without_events_has_no_marks():
    assert shapes([]) == []

"""Test the marks of events on charts."""

from __future__ import annotations

from producer_core.dashboard.charts.events import shapes
from producer_core.dashboard.queries.chart_events import ChartEvent


def test_outages_and_replays_are_bands_and_a_start_is_a_line():
    outage, start, replay = shapes(
        [ChartEvent("outage", 0.0, 60.0), ChartEvent("start", 60.0, 60.0), ChartEvent("replay", 90.0, 95.0)],
        0,
        100,
    )
    assert (outage["type"], start["type"], replay["type"]) == ("rect", "line", "rect")
    assert (outage["x0"], outage["x1"]) == ("1970-01-01T00:00:00.000+00:00", "1970-01-01T00:01:00.000+00:00")
    assert outage["fillcolor"] != replay["fillcolor"]
    assert {shape["layer"] for shape in (outage, start, replay)} == {"below"}


def test_every_event_has_a_label_unless_it_would_cover_the_next_one_of_its_kind():
    events = [ChartEvent("outage", begin, begin + 9.0) for begin in (0.0, 100.0, 470.0, 490.0)]
    labels = [shape.get("label", {}).get("text") for shape in shapes(events, 0, 900)]
    assert labels == [None, "no broker", None, "no broker"]


def test_labels_of_different_kinds_do_not_compete():
    events = [ChartEvent("outage", 0.0, 9.0), ChartEvent("partial", 1.0, 60.0), ChartEvent("start", 2.0, 2.0)]
    labels = [shape["label"]["text"] for shape in shapes(events, 0, 900)]
    assert labels == ["no broker", "partly no broker", "producer started"]


def test_a_label_at_the_right_edge_ends_at_its_event():
    events = [ChartEvent("start", at, at) for at in (100.0, 500.0, 890.0)] + [
        ChartEvent("outage", 850.0, 890.0)
    ]
    early, middle, late, outage = (shape.get("label", {}) for shape in shapes(events, 0, 900))
    assert (early["xanchor"], late["xanchor"], outage["textposition"]) == ("left", "right", "top right")
    assert middle == {}, "it would reach the label of the last start, which begins before it"


def test_a_line_for_several_starts_says_how_many():
    (shape,) = shapes([ChartEvent("start", 2.0, 2.0, 1200)], 0, 900)
    assert shape["label"]["text"] == "1,200 producers started"


def test_a_chart_without_events_has_no_marks():
    assert shapes([], 0, 900) == []

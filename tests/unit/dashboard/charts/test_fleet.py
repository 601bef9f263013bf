"""Test the charts of the fleet page."""

from __future__ import annotations

from producer_core.dashboard.charts.fleet import comparable, fleet_percentiles, spread
from producer_core.dashboard.queries.fleet import fleet
from tests.fixtures.fleet import add
from tests.fixtures.pages import HOSTILE, VIEW

NOW = 0.0


def test_axes_have_labels_even_for_few_dots(store):
    add(store, "one")
    add(store, "two", rate=90)
    add(store, "three")
    drawn = spread(fleet(store, VIEW, NOW))
    for axis in (drawn.layout.xaxis, drawn.layout.yaxis):
        low, high = axis.range
        assert low == int(low) and high >= low + 1


def test_every_delivering_producer_is_a_dot_with_an_escaped_name(store):
    add(store, "well")
    add(store, "fine")
    add(store, "odd", dead=1, client_id=HOSTILE)
    add(store, "idle", seconds=0)
    found = fleet(store, VIEW, NOW)
    drawn = spread(found)
    assert [(trace.name, len(trace.x)) for trace in drawn.data] == [("Healthy", 2), ("With problems", 1)]
    assert "<a" not in drawn.data[1].text[0] and "&lt;" in drawn.data[1].text[0]
    assert len(fleet_percentiles(found).data) == 4


def test_charts_of_an_empty_store_show_a_message(store):
    found = fleet(store, VIEW, NOW)
    for figure in (fleet_percentiles(found), spread(found)):
        assert not figure.data and figure.layout.annotations[0].text


def test_fewer_than_three_producers_are_not_compared(store):
    add(store, "one")
    add(store, "two")
    found = fleet(store, VIEW, NOW)
    assert not comparable(found)
    assert not spread(found).data and "Fewer than three" in spread(found).layout.annotations[0].text

    add(store, "closed", closed_at=NOW - 5)
    assert not comparable(fleet(store, VIEW, NOW))
    add(store, "three")
    assert comparable(fleet(store, VIEW, NOW))

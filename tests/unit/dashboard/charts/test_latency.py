"""Test the charts of the latency page."""

from __future__ import annotations

from producer_core.dashboard import charts, queries
from tests.fixtures.latency import fill
from tests.fixtures.pages import VIEW

NOW = 0.0


def test_charts_of_an_empty_store_show_a_message_and_no_line(store):
    page = queries.latency(store, VIEW, NOW)
    for figure in (charts.percentiles, charts.heat, charts.time_spent, charts.rtt_by_broker):
        drawn = figure(page)
        assert not drawn.data
        assert drawn.layout.annotations[0].text.endswith("in this range.")


def test_throttling_is_drawn_as_a_line_over_the_parts(store):
    fill(store, throttle_sum=9.0)
    drawn = charts.time_spent(queries.latency(store, VIEW, NOW))
    assert [trace.type for trace in drawn.data] == ["bar"] * 4 + ["scatter"]


def test_a_second_without_statistics_is_a_gap(store):
    fill(store, seconds=60)
    page = queries.latency(store, VIEW, NOW)
    first = charts.percentiles(page).data[0]
    assert first.y[0] is None and first.y[-1] is not None

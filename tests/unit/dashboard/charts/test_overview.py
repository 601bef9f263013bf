"""Test the charts of the overview."""

from __future__ import annotations

from producer_core.dashboard import charts, queries
from producer_core.dashboard.charts.fleet import fleet_percentiles
from producer_core.dashboard.queries.fleet import fleet
from producer_core.store import Batch
from tests.fixtures.overview import counts, fill

NOW = 0.0


def test_an_empty_figure_shows_a_message(store):
    page = queries.overview(store, "5 min", NOW)
    for figure in (charts.error_rate(page), charts.throughput(page), charts.latency(page)):
        assert not figure.data
        assert figure.layout.annotations[0].text.endswith("in this range.")
    assert charts.waiting({}, "No dead letters wait.").layout.annotations[0].text == "No dead letters wait."


def test_charts_without_a_complete_window_say_when_the_first_values_appear(store):
    now = int(NOW) // 10 * 10 + 4.0
    store.append(Batch("p", 0, (counts(now - 3, "orders", acknowledged=9, dead=1),)))
    page = queries.overview(store, "15 min", now)
    assert page.step == 10 and page.error_rate == 0.1

    lines = charts.lines_of(page)

    for figure in (charts.error_rate(lines), charts.throughput(lines), charts.latency(lines)):
        assert figure.layout.annotations[0].text == "The first values appear within 10 s."


def test_missing_data_is_a_gap_instead_of_a_zero(store):
    fill(store)
    drawn = charts.throughput(queries.overview(store, "5 min", NOW)).data[0]
    assert drawn.y[0] is None
    assert drawn.y[-1] == 99
    assert drawn.connectgaps is False


def test_a_topic_without_settled_messages_has_no_error_rate(store):
    store.append(Batch("p", 0, (counts(NOW - 10, "idle"), counts(NOW - 10, "busy", acknowledged=1, dead=1))))
    lines = {line.name: line for line in charts.error_rate(queries.overview(store, "5 min", NOW)).data}
    assert set(lines["idle"].y) == {None}
    assert set(lines["busy"].y) == {None, 50.0}


def test_a_chart_of_many_topics_sums_the_smaller_ones(store):
    rows = [counts(NOW - 10, f"quiet-{n}", acknowledged=1) for n in range(12)]
    store.append(Batch("p", 0, (*rows, counts(NOW - 10, "zebra", acknowledged=80, dead=20))))
    page = queries.overview(store, "5 min", NOW)
    lines = {line.name: line for line in charts.throughput(page).data}
    assert len(lines) == 8
    assert "zebra" in lines
    assert max(y for y in lines["6 others"].y if y is not None) == 3.0
    failing = {line.name: line for line in charts.error_rate(page).data}
    assert failing["zebra"].line.color == lines["zebra"].line.color


def test_bars_of_many_topics_include_the_sum_of_the_rest():
    bars = charts.waiting({f"t{n}": 10 - n for n in range(9)}, "none")
    assert list(bars.layout.yaxis.ticktext) == ["5 others", "t3", "t2", "t1", "t0"]
    assert sum(bars.data[0].x) == sum(range(2, 11))


def test_long_names_are_shortened_and_stay_distinct():
    names = {f"{'a' * 120}{n}{'b' * 120}": n for n in (1, 2)}
    bars = charts.waiting(names, "none")
    assert [len(text) for text in bars.layout.yaxis.ticktext] == [26, 26]
    assert len(set(bars.data[0].y)) == 2
    assert list(bars.data[0].customdata) == list(names)
    assert bars.layout.margin.l < 210


def test_the_latency_axis_spans_powers_of_ten_with_units(store):
    fill(store)
    axis = charts.latency(queries.overview(store, "5 min", NOW)).layout.yaxis
    assert tuple(axis.range) == (0, 3)
    assert dict(zip(axis.tickvals, axis.ticktext, strict=True))[1000.0] == "1 s"


def test_the_time_axis_of_a_young_store_begins_with_its_data(store):
    fill(store)
    page = queries.overview(store, "15 min", NOW)
    throughput = charts.throughput(charts.lines_of(page))
    first, _ = throughput.layout.xaxis.range
    assert first.timestamp() >= NOW - 70
    assert None not in throughput.data[0].y


def test_a_percentile_has_one_color_on_every_page(store):
    fill(store)
    pages = (
        charts.latency(queries.overview(store, "5 min", NOW)),
        charts.percentiles(queries.latency(store, queries.View("5 min"), NOW)),
        fleet_percentiles(fleet(store, queries.View("5 min"), NOW)),
    )
    first, *others = ({line.name: line.line.color for line in figure.data} for figure in pages)
    assert sorted(first) == ["p50", "p95", "p99", "p99.9"]
    assert others == [first, first]

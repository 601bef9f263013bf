"""Test the small charts of the notebook."""

from __future__ import annotations

import subprocess
import sys

import pytest

from producer_core.dashboard import charts, queries
from producer_core.dashboard.charts.small import small_charts
from producer_core.store import Batch
from tests.fixtures.overview import counts, fill

NOW = 0.0


def drawn_on_the_page(figure):
    return [
        (line.name, line.line.color, [None if y is None else float(f"{y:.4g}") for y in line.y])
        for line in figure.data
    ]


def test_a_notebook_draws_the_lines_and_colors_of_the_page(store):
    fill(store)
    page = queries.overview(store, "5 min", NOW)
    lines = charts.lines_of(page)
    figures = (charts.throughput(lines), charts.error_rate(lines), charts.latency(lines))

    for small, figure in zip(small_charts(page), figures, strict=True):
        found = [(line.name, line.colour, list(line.values)) for line in small.lines]
        assert found and found == drawn_on_the_page(figure)


def test_a_chart_has_the_words_of_the_tile_and_the_percentiles_in_its_legend(store):
    fill(store)
    page = queries.overview(store, "5 min", NOW)
    tiles = {tile.label: tile.value for tile in charts.key_tiles(page)}
    throughput, error_rate, latency = small_charts(page)

    assert [chart.title for chart in (throughput, error_rate, latency)] == [
        "Throughput",
        "Error rate",
        "Latency p99",
    ]
    assert all(chart.value == tiles[chart.title] for chart in (throughput, error_rate, latency))
    assert throughput.legend == ("orders", "payments")
    assert latency.legend[2] == f"p99 {latency.value}"
    assert [entry.split()[0] for entry in latency.legend] == ["p50", "p95", "p99", "p99.9"]


def test_a_linear_axis_begins_at_zero_and_covers_every_value(store):
    fill(store)
    throughput, error_rate, _ = small_charts(queries.overview(store, "5 min", NOW))

    assert throughput.axis.low == 0 and throughput.axis.high > 99
    assert [label for _, label in throughput.axis.ticks] == ["0", "50", "100"]
    assert [label for _, label in error_rate.axis.ticks] == ["0%", "50%", "100%"]
    assert all(value <= throughput.axis.high for value, _ in throughput.axis.ticks)


def test_a_latency_axis_has_powers_of_ten_around_every_value(store):
    fill(store)
    *_, latency = small_charts(queries.overview(store, "5 min", NOW))

    assert latency.axis.log and [label for _, label in latency.axis.ticks] == [
        "1 ms",
        "10 ms",
        "100 ms",
        "1 s",
    ]
    values = [value for line in latency.lines for value in line.values if value is not None]
    assert values and all(latency.axis.low <= value <= latency.axis.high for value in values)


def test_charts_without_data_have_a_message_and_no_line(store):
    for chart in small_charts(queries.overview(store, "5 min", NOW)):
        assert not chart.lines and not chart.legend and chart.empty.endswith("in this range.")
        assert chart.axis.high > chart.axis.low


def test_a_topic_of_small_values_has_a_readable_axis(store):
    store.append(Batch("p", 0, (counts(NOW - 10, "slow", acknowledged=1),)))
    throughput, error_rate, _ = small_charts(queries.overview(store, "5 min", NOW))

    assert [label for _, label in throughput.axis.ticks] == ["0", "0.5", "1"]
    assert [label for _, label in error_rate.axis.ticks] == ["0%", "2%", "4%"]


@pytest.mark.slow
def test_a_notebook_loads_no_plotly():
    code = "import sys\nsys.modules['plotly'] = None\nfrom producer_core.dashboard.charts.small import small_charts\nprint('loaded')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "loaded\n", done.stderr

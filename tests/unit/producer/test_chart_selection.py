"""Test the rows behind the brushed range of a chart, and what the browser reports."""

from __future__ import annotations

import time

import pandas as pd
import pytest

from producer_core import Monitor
from producer_core.dashboard.notebook import widget_state
from producer_core.diagnostics.incident import IncidentWindow, export_incident
from producer_core.dlq import DeadLetters
from producer_core.kafka.classify import fingerprint
from producer_core.metrics.histogram import bucket_of, quantiles
from producer_core.producer.chart_selection import ChartSelection
from producer_core.store import Batch, LatencyRow, StatisticsRow, Store
from tests.fixtures import incidents
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures.notebook import dead_letter

now, store = notebook_fixtures.now, notebook_fixtures.store
POLICY = fingerprint("POLICY_VIOLATION", "Policy violation")


@pytest.fixture
def monitor(store, now):
    """A monitor of two topics with different latencies, in windows of two seconds."""
    add(store, now, seconds=9, topic="payments", acknowledged=10, latency=0.2)
    add(store, now, seconds=9, topic="orders", acknowledged=990, latency=0.01)
    return Monitor(store)


_batches = iter(range(2, 100))


def add(store, now, *, seconds, topic, acknowledged, latency):
    at = int(now) - seconds
    counts = StatisticsRow(at, "c", "p", topic, acknowledged, acknowledged, 0, 0, 0, 0, 0, 0, acknowledged, acknowledged * latency)  # fmt: skip
    histogram = (LatencyRow(at, "c", "p", topic, bucket_of(latency), acknowledged),)
    store.append(Batch("p", next(_batches), (counts,), histogram, (), None))


def brush(monitor, chart, since, until, *, step=2, group=""):
    """Report a range as the browser does."""
    monitor.widget().brush = {"chart": chart, "since": since, "until": until, "step": step, "group": group}


def brush_all(monitor, state, chart):
    """Report the range of all windows of a chart."""
    until = state.since + state.step * len(chart.lines[0].values)
    brush(monitor, chart.name, state.since, until, step=state.step)


def test_nothing_brushed_is_an_empty_frame_with_the_columns_of_a_chart(monitor, now):
    nothing = monitor.selection
    brush(monitor, "throughput", int(now) // 2 * 2 - 20, int(now) + 2)

    assert not nothing and (nothing.chart, nothing.since, nothing.until) == (None, None, None)
    assert repr(nothing) == "Nothing is brushed. Drag over a chart of the monitor to select a time range."
    empty, brushed = nothing.to_frame(), monitor.selection.to_frame()
    assert isinstance(empty, pd.DataFrame) and empty.empty and not brushed.empty
    assert list(empty.columns) == list(brushed.columns) and list(empty.dtypes) == list(brushed.dtypes)


def test_the_brushed_windows_of_the_throughput_have_the_values_of_the_chart(monitor, now):
    state = widget_state.moment(monitor.store, now=now)
    chart = next(one for one in state.charts if one.name == "throughput")
    brush_all(monitor, state, chart)

    frame = monitor.selection.to_frame()

    assert set(frame["topic"]) == {"orders", "payments"}
    drawn = {
        (line.name, state.since + place * state.step): value
        for line in chart.lines
        for place, value in enumerate(line.values)
        if value
    }
    rows = {
        (row.topic, int(row.at.timestamp())): float(f"{row.per_second:.4g}")
        for row in frame.itertuples()
        if row.per_second
    }
    assert drawn == rows


def test_a_brush_selects_only_its_windows(monitor, now):
    failed_at, earlier = (int(now) - 5) // 2 * 2, (int(now) - 9) // 2 * 2
    brush(monitor, "error_rate", failed_at, failed_at + 2)
    frame = monitor.selection.to_frame()
    assert (frame["topic"].tolist(), frame["error_rate"].tolist()) == (["orders"], [0.1])

    brush(monitor, "error_rate", earlier, earlier + 2)
    frame = monitor.selection.to_frame()
    assert (frame["topic"].tolist(), frame["error_rate"].tolist()) == (["orders", "payments"], [0.0, 0.0])


def test_percentiles_are_those_of_merged_histograms_not_averages(monitor, now):
    at = (int(now) - 9) // 2 * 2
    brush(monitor, "latency", at, at + 2)
    (row,) = monitor.selection.to_frame().itertuples()
    merged = quantiles({bucket_of(0.2): 10, bucket_of(0.01): 990}, (0.5, 0.95, 0.99))

    assert [row.p50_ms, row.p95_ms, row.p99_ms] == [pytest.approx(1000 * value) for value in merged]
    assert row.p99_ms < 50 and pd.isna(row.topic)  # the mean of the two topics' p99 is above 100 ms

    brush(monitor, "throughput", at, at + 2)
    by_topic = dict(
        zip(monitor.selection.to_frame()["topic"], monitor.selection.to_frame()["p99_ms"], strict=True)
    )
    assert by_topic["payments"] == pytest.approx(200, rel=0.1) and by_topic["orders"] == pytest.approx(
        10, rel=0.1
    )


def test_a_cause_has_its_dead_letters_of_the_brushed_time(monitor, now):
    DeadLetters(monitor.store).add(
        [
            dead_letter(50, failed_at=now - 100),
            dead_letter(51, failed_at=now - 5, code="OTHER", text="Another error"),
        ]
    )
    brush(monitor, "causes", now - 10, now, step=1.0, group=POLICY)
    frame = monitor.selection.to_frame()

    assert sorted(frame["message_id"]) == sorted(f"m-{number}" for number in range(10))
    assert list(frame.columns) == list(monitor.to_frame().columns)
    assert "4111" not in frame.to_csv()
    assert POLICY in repr(monitor.selection) and "Cause" in repr(monitor.selection)


def test_the_selection_has_the_filters_of_the_monitor(store, now):
    monitor = Monitor(store, cluster="another")
    brush(monitor, "throughput", int(now) // 2 * 2 - 20, int(now) + 2)
    assert monitor.selection and monitor.selection.to_frame().empty
    brush(monitor, "causes", now - 10, now, step=1.0, group=POLICY)
    assert monitor.selection.to_frame().empty


def test_a_selection_says_its_chart_and_range(monitor):
    brush(monitor, "error_rate", 1_764_000_000, 1_764_000_060)
    assert repr(monitor.selection) == (
        "Error rate, 2025-11-24 16:00:00 to 2025-11-24 16:01:00 UTC. to_frame() returns its rows."
    )


@pytest.mark.parametrize(
    "reported",
    [
        {},
        {"chart": "secrets", "since": 1, "until": 2, "step": 1},
        {"chart": "latency", "since": 2, "until": 2, "step": 1},
        {"chart": "latency", "since": "1; DROP TABLE statistics", "until": 2, "step": 1},
        {"chart": "latency", "since": 1, "until": float("inf"), "step": 1},
        {"chart": "latency", "since": 1, "until": 2, "step": 0},
        {"chart": "latency", "since": True, "until": 2, "step": 1},
        {"chart": "causes", "since": 1, "until": 2, "step": 1},
        {"chart": ["latency"], "since": 1, "until": 2, "step": 1},
    ],
)
def test_anything_but_a_range_of_a_chart_selects_nothing(store, reported):
    selection = ChartSelection.of(reported, store, {})
    assert not selection and selection.to_frame().empty


@pytest.mark.slow
def test_a_bundle_has_selections_too(tmp_path):
    window = IncidentWindow(time.time() - 7200, time.time() - 7200 + incidents.LENGTH)
    store = Store.open(tmp_path / "store.duckdb")
    incidents.fill(store, window.since)
    export_incident(store, tmp_path / "INC-42.zip", window, who="ann", origin="cli")
    monitor = Monitor(tmp_path / "INC-42.zip")
    state = widget_state.moment(monitor.store)
    chart = next(one for one in state.charts if one.name == "throughput")

    brush_all(monitor, state, chart)
    rows = monitor.selection.to_frame()
    assert rows["acknowledged"].sum() > 0 and set(rows["topic"]) == {line.name for line in chart.lines}

    cause = next(one for one in state.causes if len(one.trend) > 1)
    until = cause.trend_since + cause.trend_step * len(cause.trend)
    brush(monitor, "causes", cause.trend_since, until, step=cause.trend_step, group=cause.fingerprint)
    shown = monitor.selection.to_frame()
    assert len(shown) == cause.count == sum(cause.trend)
    assert incidents.PASSWORD not in shown.to_csv() and incidents.CARD not in shown.to_csv()

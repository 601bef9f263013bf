"""Test the picture of the monitor's charts."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from producer_core.dashboard.charts.lines import ChartLine
from producer_core.dashboard.notebook import chart_picture, widget_state
from tests.fixtures import notebook as notebook_fixtures

now, store = notebook_fixtures.now, notebook_fixtures.store


@pytest.fixture
def local_time(monkeypatch):
    """Use a time zone that differs from UTC by a part of an hour."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def texts_of(picture):
    return [node.text for node in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_has_three_charts_with_values_and_units(store, now):
    state = widget_state.moment(store, now=now)
    texts = texts_of(chart_picture.picture(state))

    assert [one for one in ("Throughput", "Error rate", "Latency p99") if one in texts] == [
        "Throughput", "Error rate", "Latency p99",
    ]  # fmt: skip
    assert "10.0%" in texts and "orders" in texts
    assert any(text.startswith("p50 ") for text in texts)


def test_the_time_axis_shows_whole_local_times(local_time):
    begin = 1_790_000_000.0  # 19:43:20 in this zone
    minutes = chart_picture.time_ticks(begin, begin + 300)
    hours = chart_picture.time_ticks(begin, begin + 6 * 3600)
    days = chart_picture.time_ticks(begin, begin + 7 * 86_400)
    seconds = chart_picture.time_ticks(begin, begin + 60)

    assert all(re.fullmatch(r"\d\d:\d[02468]", text) for _, text in minutes) and 2 <= len(minutes) <= 4
    assert all(re.fullmatch(r"\d\d:00", text) for _, text in hours) and 2 <= len(hours) <= 4
    assert all(re.fullmatch(r"\d+ [A-Z][a-z]{2}", text) for _, text in days) and 2 <= len(days) <= 4
    assert all(re.fullmatch(r"\d\d:\d\d:[03]0", text) for _, text in seconds) and 2 <= len(seconds) <= 4
    assert all(begin <= at <= begin + 300 for at, _ in minutes)


def test_a_gap_interrupts_the_line_and_a_single_value_is_a_dash(store, now):
    state = widget_state.moment(store, now=now)
    chart = state.charts[0]
    line = ChartLine("orders", "#123456", (1.0, 2.0, None, 3.0, None, 4.0, 5.0))
    picture = chart_picture.picture(replace(state, charts=(replace(chart, lines=(line,)),)))

    (path,) = re.findall(r"<path d='([^']+)' fill='none' stroke='#123456'", picture)
    assert path.count("M") == 3 and path.count("L") == 2 and path.count("h") == 1


def test_a_long_legend_has_several_rows_within_the_picture(store, now):
    state = widget_state.moment(store, now=now)
    lines = tuple(ChartLine(f"a-rather-long-topic-{n}", "#123456", (1.0,)) for n in range(8))
    chart = replace(state.charts[0], lines=lines, legend=tuple(line.name for line in lines))
    crowded = replace(state, charts=(chart, *state.charts[1:]))
    root = ElementTree.fromstring(chart_picture.picture(crowded))

    lowest = max(float(node.get("y")) for node in root.iter("{http://www.w3.org/2000/svg}text"))
    assert lowest < float(root.get("height")) == chart_picture.height(crowded) > chart_picture.height(state)


def test_an_empty_store_has_a_picture_with_messages(tmp_path, now):
    from producer_core.store import Store

    state = widget_state.moment(Store.open(tmp_path / "empty.duckdb"), now=now)
    texts = texts_of(chart_picture.picture(state))
    assert "No acknowledged messages in this range." in texts and "No latency data in this range." in texts

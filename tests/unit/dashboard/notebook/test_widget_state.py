"""Test the state that the widget shows: numbers of the store as values and as text."""

from __future__ import annotations

import json
import re

import pytest

from producer_core.alerts import AlertLog, alert, follow
from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dlq import DeadLetters
from producer_core.store import Batch, ProducerRow, Store
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures.notebook import dead_letter

now, store = notebook_fixtures.now, notebook_fixtures.store


def test_the_widget_shows_the_numbers_of_the_store(store, now):
    state = widget_state.moment(store, now=now)
    numbers = dict(state.numbers)

    assert "10 of 100" in state.sentence
    assert list(numbers) == ["Throughput", "Error rate", "Latency p99", "Dead letters", "Pending"]
    assert numbers["Error rate"] == "10.0%" and numbers["Pending"] == "3" and numbers["Dead letters"] == "10"
    assert numbers["Latency p99"].endswith("ms")
    assert (state.dead, state.dead_total) == ((("orders", 10),), 10)
    throughput, error_rate, latency = state.charts
    assert sum(filter(None, throughput.lines[0].values)) * state.step == 90
    assert set(error_rate.lines[0].values) - {None, 0.0} == {10.0}
    assert len(latency.lines) == 4
    first = (
        state.since
        + throughput.lines[0].values.index(max(filter(None, throughput.lines[0].values))) * state.step
    )
    assert first <= now - 5 < first + state.step
    assert state.producers == ("shop: connected",)
    assert not state.why_not


def test_the_first_lines_name_no_internals(store, now):
    state = widget_state.moment(store, now=now)
    headline, *_ = widget_state.text(state).splitlines()
    page = static_export.page(state, "x")

    assert headline == state.sentence and "shop" not in headline
    assert widget_state.text(state).splitlines()[-2:] == ["shop: connected", f"As of {state.as_of}"]
    assert page.index("Throughput") < page.index("Dead letters") < page.index("shop: connected")


def test_the_browser_gets_charts_with_axes_and_no_value_twice(store, now):
    found = json.loads(json.dumps(widget_state.moment(store, now=now).as_json()))

    assert [chart["unit"] for chart in found["charts"]] == ["rate", "percent", "milliseconds"]
    assert set(found["charts"][0]) == {
        "name", "title", "value", "change", "tone", "unit", "lines", "legend", "axis", "empty",
    }  # fmt: skip
    assert set(found["charts"][0]["lines"][0]) == {"name", "colour", "values"}
    assert found["charts"][0]["axis"]["ticks"][0] == [0.0, "0"]


def test_right_after_the_first_send_the_widget_says_connecting(tmp_path, now):
    path = tmp_path / "own.duckdb"
    new = ProducerRow(
        "p", "", "shop", "host", 7, "0.1", now - 1, now, None, False, None, 500, 0, 4, 100_000, 2**27, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    store = Store.open(path)
    store.append(Batch("p", 0, producer=new))
    state = widget_state.moment(store, now=now)

    assert state.sentence == "Connecting to the brokers. 500 messages pending." and state.tone == "quiet"
    store.append(Batch("p", 1, producer=new._replace(connection_error="Connection refused")))
    assert widget_state.moment(store, now=now).sentence.startswith("Not delivering. No broker connection")


def test_a_cause_has_its_dead_letters_over_time(store, now):
    DeadLetters(store).add([dead_letter(60 + n, failed_at=now - 65) for n in range(4)])
    (cause,) = widget_state.moment(store, now=now).causes

    assert sum(cause.trend) == cause.count == 14 and len([bar for bar in cause.trend if bar]) == 2
    assert "maximum 10, latest 10" in cause.trend_text


def test_an_alert_is_one_line_with_its_advice_beside_it(store, now):
    log = AlertLog(store, clock=lambda: now)
    found = alert("circuit_opened", "p", now, text="The circuit of the cluster is open: down.")
    log.record(follow({}, [found, alert("epoch_rose", "p", now, text="A new epoch.")], now), told_by="p")
    state = widget_state.moment(store, now=now)

    (line,) = state.alerts
    assert line.text.endswith("The circuit of the cluster is open: down.") and line.tone in ("bad", "warning")
    assert line.advice and line.advice not in line.text
    assert f"{line.text} {line.advice}" in widget_state.text(state)


def test_a_cause_has_advice_and_the_safety_of_a_resend(store, now):
    DeadLetters(store).add(
        [
            dead_letter(
                50, failed_at=now - 1, code="_MSG_TIMED_OUT", text="Timed out", verdict="possibly_persisted"
            )
        ]
    )
    first, second = widget_state.moment(store, now=now).causes

    assert (first.count, first.name, first.safe) == (10, "POLICY_VIOLATION on orders", True)
    assert first.advice
    assert (second.count, second.safe) == (1, False)


def test_six_causes_are_listed_and_the_rest_is_counted(store, now):
    DeadLetters(store).add(
        [dead_letter(100 + n, failed_at=now, text=f"Reason {chr(97 + n)}") for n in range(20)]
    )
    state = widget_state.moment(store, now=now)
    assert len(state.causes) == 6
    assert state.others == 30 - sum(cause.count for cause in state.causes)


def test_an_empty_store_has_a_headline_and_an_empty_chart(tmp_path, now):
    from producer_core.store import Store

    state = widget_state.moment(Store.open(tmp_path / "empty.duckdb"), now=now)
    assert state.tone == "quiet" and not state.causes and state.until is None
    assert "<img" in static_export.page(state, "x") and "▁" not in widget_state.text(state)


@pytest.mark.slow
def test_every_listed_time_range_can_be_shown(store, now):
    for window in widget_state.WINDOWS:
        assert widget_state.moment(store, window, now).window == window


def test_text_has_a_chart_of_block_characters(store, now):
    assert re.search(
        r"Throughput +[▁▂▃▄▅▆▇█ ]+ up to [\d.]+/s",
        widget_state.text(widget_state.moment(store, now=now)),
    )
    assert widget_state.spark((0.0, None, 5.0, 10.0), 10.0) == "▁ ▅█"

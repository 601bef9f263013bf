"""Test the state that the widget shows: numbers of the store as values and as text."""

from __future__ import annotations

import re

import pytest

from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dlq import DeadLetters
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures.notebook import dead_letter

now, store = notebook_fixtures.now, notebook_fixtures.store


def test_the_widget_shows_the_numbers_of_the_store(store, now):
    state = widget_state.moment(store, now=now)
    tiles = dict(state.tiles)

    assert "10 of 100" in state.sentence
    assert tiles["failed"] == "10.0%" and tiles["pending"] == "3" and tiles["dead letters"] == "10"
    assert tiles["p50"].endswith("ms") and tiles["p99"].endswith("ms")
    assert (state.dead, state.dead_total) == ((("orders", 10),), 10)
    rates = [value for value in state.series.sent if value is not None]
    assert sum(rates) * state.series.step == 90
    assert sum(filter(None, state.series.failed)) * state.series.step == 10
    assert state.producers == ("shop: connected",)
    assert not state.why_not


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
        r"sent +[▁▂▃▄▅▆▇█ ]+ up to 9/s|sent +[▁▂▃▄▅▆▇█ ]+ up to [\d.]+/s",
        widget_state.text(widget_state.moment(store, now=now)),
    )
    assert widget_state.spark((0.0, None, 5.0, 10.0), 10.0) == "▁ ▅█"

"""The state of the notebook monitor: numbers of the store as text and as a static view, with names escaped."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from producer_core import Monitor, ReliableKafkaProducer
from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dlq import DeadLetters
from producer_core.errors import StoreUnavailable
from producer_core.testing import InMemoryTransport
from tests.fixtures import notebook as parts
from tests.fixtures.notebook import HOSTILE, dead_letter

displayed, now, store = parts.displayed, parts.now, parts.store


def test_the_widget_shows_the_numbers_of_the_store(store, now):
    state = widget_state.moment(store, now=now)
    tiles = dict(state.tiles)

    assert "10 of 100" in state.sentence
    assert tiles["failed"] == "10.0 %" and tiles["pending"] == "3" and tiles["dead letters"] == "10"
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


def test_every_listed_time_range_can_be_shown(store, now):
    for window in widget_state.WINDOWS:
        assert widget_state.moment(store, window, now).window == window


def test_outside_a_notebook_the_monitor_is_text(store):
    text = repr(Monitor(store))
    assert "10 of 100" in text and "Dead letters: orders 10" in text and "<" not in text


def test_text_has_a_chart_of_block_characters(store, now):
    assert re.search(
        r"sent +[▁▂▃▄▅▆▇█ ]+ up to 9 /s|sent +[▁▂▃▄▅▆▇█ ]+ up to [\d.]+ /s",
        widget_state.text(widget_state.moment(store, now=now)),
    )
    assert widget_state.spark((0.0, None, 5.0, 10.0), 10.0) == "▁ ▅█"


def test_paths_and_producers_are_sources(store, tmp_path):
    assert "Dead letters: orders 10" in repr(Monitor(store.path))
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        assert "As of" in repr(producer.monitor())


def test_a_producer_has_one_monitor_and_one_widget(tmp_path):
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        assert producer.monitor() is producer.monitor()
        assert producer.monitor().widget() is producer.monitor().widget()


def test_a_producer_without_a_store_explains_how_to_get_a_monitor():
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport) as producer:
        with pytest.raises(StoreUnavailable, match="has no store") as caught:
            producer.monitor()
    assert "store=" in str(caught.value)


def test_without_the_widget_the_monitor_names_the_package_to_install(store, monkeypatch):
    monkeypatch.setattr("producer_core._internal.dashboard_entry.entry_points", lambda **_: ())
    monitor = Monitor(store)
    assert "90 messages acknowledged, 10 dead, 10 dead letters pending" in repr(monitor)
    assert "pip install" in repr(monitor) and "pip install" in monitor._repr_html_()
    assert monitor._display_() == repr(monitor)
    with pytest.raises(NotImplementedError):  # IPython then shows the text
        monitor._ipython_display_()


def test_a_terminal_without_a_kernel_gets_text(store, monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    with pytest.raises(NotImplementedError):
        Monitor(store)._ipython_display_()


def test_plain_html_is_the_static_view(store):
    page = Monitor(store)._repr_html_()
    assert "10 of 100" in page and "<script" not in page and "data:image/svg+xml;base64" in page


def test_names_and_errors_are_escaped_and_masked(store, now):
    DeadLetters(store).add(
        [dead_letter(99, topic=HOSTILE, failed_at=now, text=f"{HOSTILE} password=hunter2")]
    )
    state = widget_state.moment(store, now=now)
    page = static_export.page(state, "x")
    picture = b64decode(re.search(r"base64,([^']+)'", page)[1]).decode()

    assert "<img src=x" not in page and "&lt;img src=x" in page
    assert "<img" not in picture
    assert "hunter2" not in page and "hunter2" not in widget_state.text(state)
    assert "hunter2" not in str(state.as_json())

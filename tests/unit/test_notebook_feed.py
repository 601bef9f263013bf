"""What the notebook's monitor shows: numbers of the store, as text, as a still picture, and never as somebody's HTML."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from producer_core import Monitor, ReliableKafkaProducer
from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dlq import DeadLetters
from producer_core.errors import StoreUnavailable
from producer_core.testing import InMemoryTransport
from tests.unit import notebook_parts as parts
from tests.unit.notebook_parts import HOSTILE, dead_letter

displayed, now, store = parts.displayed, parts.now, parts.store


def test_the_numbers_are_those_of_the_store(store, now):
    seen = widget_state.moment(store, now=now)
    tiles = dict(seen.tiles)

    assert "10 of 100" in seen.sentence
    assert tiles["failed"] == "10.0 %" and tiles["pending"] == "3" and tiles["dead letters"] == "10"
    assert tiles["p50"].endswith("ms") and tiles["p99"].endswith("ms")
    assert (seen.dead, seen.dead_total) == ((("orders", 10),), 10)
    rates = [value for value in seen.series.sent if value is not None]
    assert sum(rates) * seen.series.step == 90
    assert sum(filter(None, seen.series.failed)) * seen.series.step == 10
    assert seen.producers == ("shop: connected",)
    assert not seen.why_not


def test_a_cause_says_what_it_means_and_whether_a_resend_is_safe(store, now):
    DeadLetters(store).add(
        [dead_letter(50, died=now - 1, code="_MSG_TIMED_OUT", text="Timed out", verdict="possibly_persisted")]
    )
    first, second = widget_state.moment(store, now=now).causes

    assert (first.count, first.name, first.safe) == (10, "POLICY_VIOLATION on orders", True)
    assert first.advice
    assert (second.count, second.safe) == (1, False)


def test_many_causes_are_six_and_a_number(store, now):
    DeadLetters(store).add([dead_letter(100 + n, died=now, text=f"Reason {chr(97 + n)}") for n in range(20)])
    seen = widget_state.moment(store, now=now)
    assert len(seen.causes) == 6
    assert seen.others == 30 - sum(cause.count for cause in seen.causes)


def test_an_empty_store_has_a_sentence_and_no_picture_of_nothing(tmp_path, now):
    from producer_core.store import Store

    seen = widget_state.moment(Store.open(tmp_path / "empty.duckdb"), now=now)
    assert seen.tone == "quiet" and not seen.causes and seen.until is None
    assert "<img" in static_export.page(seen, "x") and "▁" not in widget_state.text(seen)


def test_every_time_range_of_the_list_can_be_looked_at(store, now):
    for window in widget_state.WINDOWS:
        assert widget_state.moment(store, window, now).window == window


def test_without_a_notebook_the_monitor_is_text(store):
    text = repr(Monitor(store))
    assert "10 of 100" in text and "Dead letters: orders 10" in text and "<" not in text


def test_text_has_a_picture_in_block_characters(store, now):
    assert re.search(
        r"sent +[▁▂▃▄▅▆▇█ ]+ up to 9 /s|sent +[▁▂▃▄▅▆▇█ ]+ up to [\d.]+ /s",
        widget_state.text(widget_state.moment(store, now=now)),
    )
    assert widget_state.spark((0.0, None, 5.0, 10.0), 10.0) == "▁ ▅█"


def test_a_path_and_a_producer_are_sources_too(store, tmp_path):
    assert "Dead letters: orders 10" in repr(Monitor(store.path))
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        assert "As of" in repr(producer.monitor())


def test_a_cell_run_twice_gives_the_same_monitor_of_a_producer(tmp_path):
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        assert producer.monitor() is producer.monitor()
        assert producer.monitor().widget() is producer.monitor().widget()


def test_a_producer_without_a_store_says_how_to_get_a_monitor():
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport) as producer:
        with pytest.raises(StoreUnavailable, match="has no store") as caught:
            producer.monitor()
    assert "store=" in str(caught.value)


def test_without_the_widget_the_monitor_is_shorter_text_that_says_what_to_install(store, monkeypatch):
    monkeypatch.setattr("producer_core._internal.dashboard_entry.entry_points", lambda **_: ())
    monitor = Monitor(store)
    assert "90 messages acknowledged, 10 dead, 10 dead letters pending" in repr(monitor)
    assert "pip install" in repr(monitor) and "pip install" in monitor._repr_html_()
    assert monitor._display_() == repr(monitor)
    with pytest.raises(NotImplementedError):  # makes IPython show the text
        monitor._ipython_display_()


def test_a_terminal_without_a_kernel_gets_text(store, monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    with pytest.raises(NotImplementedError):
        Monitor(store)._ipython_display_()


def test_html_alone_is_the_still_picture(store):
    page = Monitor(store)._repr_html_()
    assert "10 of 100" in page and "<script" not in page and "data:image/svg+xml;base64" in page


def test_names_and_errors_are_shown_as_text(store, now):
    DeadLetters(store).add([dead_letter(99, topic=HOSTILE, died=now, text=f"{HOSTILE} password=hunter2")])
    seen = widget_state.moment(store, now=now)
    page = static_export.page(seen, "x")
    picture = b64decode(re.search(r"base64,([^']+)'", page)[1]).decode()

    assert "<img src=x" not in page and "&lt;img src=x" in page
    assert "<img" not in picture
    assert "hunter2" not in page and "hunter2" not in widget_state.text(seen)
    assert "hunter2" not in str(seen.as_json())

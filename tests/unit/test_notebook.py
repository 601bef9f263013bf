"""The notebook's monitor without a notebook: text, still picture, messages from the browser, magics."""

from __future__ import annotations

import json
import time

import pytest

from dashboard.notebook import feed, magics
from producer_core import Monitor, ReliableKafkaProducer
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreUnavailable
from producer_core.events import Attempt, DeadLetter
from producer_core.failures import fingerprint
from producer_core.histogram import bucket_of
from producer_core.store import Batch, LatencyRow, ProducerRow, StatisticsRow, Store
from producer_core.testing import InMemoryTransport

NOW = 0.0
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def now():
    """When this test began: the page compares with the real clock, and other tests may have taken minutes."""
    global NOW
    NOW = float(int(time.time()))


@pytest.fixture
def store(tmp_path):
    """Ninety acknowledged and ten dead on `orders`, by a producer that is alive."""
    store = Store.open(tmp_path / "store.duckdb")
    producer = ProducerRow(
        "p", "c", "shop", "host", 7, "0.1", NOW - 60, NOW + 60, None, True, None, 3, 1, 4, 100_000, 2**27, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    statistics = StatisticsRow(int(NOW) - 5, "c", "p", "orders", 100, 90, 10, 10, 0, 0, 0, 0, 10, 0.1)
    latencies = (LatencyRow(int(NOW) - 5, "c", "p", "orders", bucket_of(0.02), 90),)
    store.append(Batch("p", 1, (statistics,), latencies, (), producer))
    DeadLetters(store).add([letter(number) for number in range(10)])
    return store


def letter(number, *, topic="orders", died=None):
    died = died or NOW - 5
    text = "Policy violation"
    return DeadLetter(
        message_id=f"m-{number}", cluster_id="c", producer_id="p", topic=topic, key=b"k", value=b"v", headers=(),
        partition=None, timestamp_ms=None, verdict="rejected", verdict_reason="Refused.", kind="permanent",
        code="POLICY_VIOLATION", error_text=text, fingerprint=fingerprint("POLICY_VIOLATION", text),
        attempts=(Attempt(died, "POLICY_VIOLATION", text),), accepted_at=died, failed_at=died,
    )  # fmt: skip


@pytest.fixture
def widget(store):
    """The widget, and what it sends to the browser."""
    widget = Monitor(store).widget()
    widget.sent = []
    widget.send = widget.sent.append
    return widget


def browser_says(widget, **message):
    widget._handle_custom_msg(message, [])
    return widget.sent[-1]


def test_the_numbers_are_those_of_the_store(store):
    seen = feed.moment(store, NOW)
    tiles = dict(seen.tiles)

    assert "10 of 100" in seen.sentence
    assert tiles["failed"] == "10.0 %" and tiles["pending"] == "3" and tiles["dead letters"] == "10"
    assert tiles["p50"].endswith("ms") and tiles["p99"].endswith("ms")
    assert (seen.dead, seen.dead_total) == ((("orders", 10),), 10)
    assert sum(seen.sent) * 2 == 90 and sum(seen.failed) * 2 == 10
    assert not seen.why_not and not seen.warning


def test_without_a_notebook_the_monitor_is_text(store):
    text = repr(Monitor(store))
    assert "10 of 100" in text and "Dead letters: orders 10" in text and "<" not in text


def test_a_path_and_a_producer_are_sources_too(store, tmp_path):
    assert "Dead letters: orders 10" in repr(Monitor(store.path))
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        assert "As of" in repr(producer.monitor())


def test_a_producer_without_a_store_says_how_to_get_a_monitor():
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport) as producer:
        with pytest.raises(StoreUnavailable, match="has no store") as caught:
            producer.monitor()
    assert "store=" in str(caught.value)


def test_without_the_widget_the_monitor_is_shorter_text_that_says_what_to_install(store, monkeypatch):
    monkeypatch.setattr("producer_core.monitor.entry_points", lambda **_: ())
    monitor = Monitor(store)
    assert "90 messages acknowledged, 10 died, 10 dead letters wait" in repr(monitor)
    assert "pip install" in repr(monitor)
    with pytest.raises(NotImplementedError):  # makes IPython show the text
        monitor._ipython_display_()


def test_a_cell_gets_a_still_picture_and_the_live_widget(store, displayed):
    Monitor(store)._ipython_display_()
    (still, options), (live, _) = displayed

    assert "10 of 100" in still["text/html"] and "<svg" in still["text/html"]
    assert "<script" not in still["text/html"]
    assert "10 of 100" in still["text/plain"]
    assert options["display_id"].startswith("pc-")
    assert "application/vnd.jupyter.widget-view+json" in live and live["text/plain"] == ""


def test_what_is_saved_stays_far_below_100_kB(store, displayed):
    DeadLetters(store).add([letter(100 + number, topic=f"topic-{number}") for number in range(400)])
    monitor = Monitor(store)
    monitor._ipython_display_()
    saved = [bundle for bundle, _ in displayed]

    assert len(json.dumps(saved)) + len(json.dumps(monitor.widget().get_state(), default=str)) < 50_000
    assert "and 393 more topics" in saved[0]["text/html"]


@pytest.fixture
def displayed(monkeypatch):
    """What is displayed: the bundles and their options."""
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **options: shown.append((bundle, options)))
    return shown


def test_names_and_errors_are_shown_as_text(store):
    DeadLetters(store).add([letter(99, topic=HOSTILE)])
    page = feed.page(feed.moment(store, NOW), "x")
    assert HOSTILE not in page and "&lt;img" in page


def test_each_question_is_answered_with_fresh_numbers(widget, store):
    assert browser_says(widget, type="ask")["seen"]["dead_total"] == 10
    DeadLetters(store).add([letter(10)])
    assert browser_says(widget, type="ask")["seen"]["dead_total"] == 11


def test_clear_leaves_what_died_after_the_person_looked(widget, store):
    seen = browser_says(widget, type="ask")["seen"]
    DeadLetters(store).add([letter(10, died=NOW + 1)])

    answer = browser_says(widget, type="clear", until=json.loads(json.dumps(seen["until"])))

    assert "10" in answer["said"]
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
    assert DeadLetters(store).count(DeadLetterFilter(state="archived")) == 10
    with store.borrow() as connection:
        assert connection.execute("SELECT DISTINCT origin FROM audit").fetchall() == [("notebook",)]


def test_a_replay_is_planned_once_and_its_progress_told(widget, store):
    until = browser_says(widget, type="ask")["seen"]["until"]
    assert browser_says(widget, type="replay", until=until)["said"] == "Replaying: 0 of 10"
    assert browser_says(widget, type="replay", until=until)["said"] == "Replaying: 0 of 10"
    with store.borrow() as connection:
        assert connection.execute("SELECT total, origin FROM operations").fetchall() == [(10, "notebook")]


def test_without_a_live_producer_the_button_says_why(store):
    seen = feed.moment(store, NOW + 3600)
    assert "running producer" in seen.why_not


def test_trouble_with_the_store_is_an_answer_not_an_exception(widget, monkeypatch):
    def closed(*_):
        raise StoreUnavailable("The store is gone.", fix="Bring it back.")

    monkeypatch.setattr(feed, "moment", closed)
    answer = browser_says(widget, type="ask")
    assert answer["type"] == "trouble" and "The store is gone." in answer["said"]


def test_the_still_picture_follows_every_few_questions(widget, displayed):
    widget._ipython_display_()
    for _ in range(5):
        browser_says(widget, type="ask")
    assert [options.get("update") for _, options in displayed] == [False, None, True]


def test_the_magics_tell_numbers_and_causes(store, capsys):
    magics.producer_stats(str(store.path))
    magics.dlq(f"'{store.path}'")
    said = capsys.readouterr().out
    assert "10 of 100" in said and "10 x POLICY_VIOLATION on orders" in said


def test_load_ext_registers_the_magics():
    from IPython.core.interactiveshell import InteractiveShell

    import producer_core

    shell = InteractiveShell()
    producer_core.load_ipython_extension(shell)
    assert {"producer_stats", "dlq"} <= set(shell.magics_manager.magics["line"])

"""Test the dashboard's data, figures and actions on a real store, and its pages in different states."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.dashboard import actions, charts, queries, wording
from producer_core.dashboard.server import command as server_command
from producer_core.dashboard.views import reads
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.metrics.histogram import RELATIVE_ERROR, bucket_of
from producer_core.store import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow, Store

NOW = 0.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


def counts(at, topic, *, acknowledged=0, dead=0):
    return StatisticsRow(
        int(at), "c", "p", topic, acknowledged + dead, acknowledged, dead, dead, 0, 0, 0, 0, 10, 0.1
    )


@pytest.fixture(autouse=True)
def now():
    """Set NOW to the start of the test, because the page uses the real clock."""
    global NOW
    NOW = float(int(time.time()))


def alive(seen_at=None, **changes):
    row = ProducerRow(
        "p", "c", "shop", "host", 7, "0.1", NOW - 60, seen_at or NOW, None, True, None, 3, 1, 4, 100_000, 2**27, None,
        True, "at_least_once", "{}",
    )  # fmt: skip
    return row._replace(**changes)


def dead_letter(number, **changes):
    text = "Broker: Policy violation"
    known = {
        "message_id": f"m-{number}", "cluster_id": "c", "producer_id": "p", "topic": "payments", "key": b"k",
        "value": b'{"n": 1, "password": "hunter2"}', "headers": (("trace", b"abc"),), "partition": None,
        "timestamp_ms": None, "verdict": "rejected", "verdict_reason": "one transmission", "kind": "permanent",
        "code": "POLICY_VIOLATION", "error_text": text, "fingerprint": fingerprint("POLICY_VIOLATION", text),
        "attempts": (Attempt(NOW, "POLICY_VIOLATION", text),), "accepted_at": NOW - 1, "failed_at": NOW + number,
    }  # fmt: skip
    return DeadLetter(**{**known, **changes})


def fill(store, **producer):
    """Write one minute of successful orders and failing payments, with a few slow messages."""
    rows, slow, quick = [], bucket_of(0.5), bucket_of(0.005)
    for at in range(int(NOW) - 60, int(NOW)):
        rows += [counts(at, "orders", acknowledged=99), counts(at, "payments", dead=1)]
    latencies = [
        LatencyRow(int(NOW) - 30, "c", "p", "orders", quick, 90),
        LatencyRow(int(NOW) - 20, "c", "p", "orders", slow, 10),
    ]
    errors = [
        ErrorRow(int(NOW) - 30, "c", "p", "payments", "POLICY_VIOLATION", "permanent", 60),
        ErrorRow(int(NOW) - 30, "c", "p", "orders", "_TIMED_OUT", "timed_out", 500),
    ]
    store.append(Batch("p", 0, tuple(rows), tuple(latencies), tuple(errors), alive(**producer)))


# data


def test_the_overview_shows_the_totals_of_the_store(store):
    fill(store)
    page = queries.overview(store, "15 min", NOW)
    assert page.error_rate == pytest.approx(0.01)
    assert page.throughput == pytest.approx(99.0, rel=0.2)
    assert (page.pending, page.waiting, page.seen_at) == (3, 1, NOW)


def test_percentiles_come_from_merged_histograms(store):
    fill(store)
    p50, p95, p99 = queries.overview(store, "5 min", NOW).latency
    assert p50 == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert p95 == p99 == pytest.approx(0.5, rel=2 * RELATIVE_ERROR)


def test_the_headline_names_the_topic_with_dead_letters_not_the_one_with_retries(store):
    fill(store)
    DeadLetters(store).add([dead_letter(number, failed_at=NOW - 5) for number in range(60)])
    tone, text = wording.sentence(queries.overview(store, "15 min", NOW).situation)
    assert tone == "bad"
    assert text.startswith(
        "Failing now. 60 of 6,000 messages failed in the last 15 min, all on payments: a broker policy forbids the request."
    )


@pytest.mark.parametrize("window", queries.RANGES)
def test_every_range_has_about_a_hundred_chart_points(store, window):
    fill(store)
    page = queries.overview(store, window, NOW)
    assert queries.RANGES[window] / page.step <= queries.POINTS
    assert charts.throughput(page).data[0].name == "orders"


def test_an_action_applies_to_the_selection_or_to_all_matches(store):
    DeadLetters(store).add(
        [dead_letter(1), dead_letter(2, verdict="possibly_persisted"), dead_letter(3, topic="orders")]
    )
    where = DeadLetterFilter(topic="payments")
    every = queries.scope(store, actions.selected(where, ()))
    one = queries.scope(store, actions.selected(where, ("m-1",)))
    assert (every.count, every.safe) == (2, False)
    assert (one.count, one.safe) == (1, True)
    assert queries.choices(store, "dead") == (("orders", "payments"), ("POLICY_VIOLATION",))


# figures


def test_an_empty_figure_shows_a_message(store):
    page = queries.overview(store, "5 min", NOW)
    for figure in (charts.error_rate(page), charts.throughput(page), charts.latency(page)):
        assert not figure.data
        assert figure.layout.annotations[0].text.endswith("in this range.")
    assert charts.waiting({}, "No dead letters wait.").layout.annotations[0].text == "No dead letters wait."


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


# actions


def test_clear_archives_and_undo_restores_the_same_dead_letters(store):
    dead_letters = DeadLetters(store)
    dead_letters.add([dead_letter(1), dead_letter(2), dead_letter(3)])
    first = actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    second = actions.clear(store, DeadLetterFilter())
    assert (first.ok, second.text) == (True, "Archived 2 dead letters.")
    assert actions.undo_clear(store, second.undo).ok
    assert dead_letters.get("m-1").state == "archived"
    assert dead_letters.count(DeadLetterFilter()) == 2


def test_a_replay_without_a_runner_is_refused_with_a_message(store):
    DeadLetters(store).add([dead_letter(1)])
    done = actions.start_replay(store, DeadLetterFilter())
    assert not done.ok
    assert "Start a producer on this store" in done.text


# the server's command


def test_the_server_listens_on_loopback_and_sends_no_usage_statistics(path):
    command = server_command.command(path, 8123)
    assert "--server.address=127.0.0.1" in command
    assert "--browser.gatherUsageStats=false" in command
    assert command[-1] == str(path)


# the page


def opened(path, monkeypatch, view=None):
    """Open the app, or only the page of `view`: AppTest cannot switch to a page that is a function."""
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("sys.argv", ["app", str(path)])
    page = f"from pathlib import Path\nfrom producer_core.dashboard.views import {view}\n\n{view}.show(Path({str(path)!r}))\n"
    app = "from producer_core.dashboard.app import main\n\nmain()\n"
    return AppTest.from_string(page if view else app, default_timeout=30).run()


def text_of(page):
    return " ".join(element.body for element in page.get("html"))


def test_a_live_store_shows_its_dead_letters(path, store, monkeypatch):
    fill(store, seen_at=time.time() + 60)
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 5)])
    page = opened(path, monkeypatch)
    assert not page.exception
    assert "Data is live" in text_of(page)
    page = opened(path, monkeypatch, "dead_letters")
    assert page.button(key="replay").label == "Replay 1"
    assert page.button(key="clear").label == "Clear 1"
    assert not page.button(key="replay").disabled


def test_without_a_producer_replay_is_disabled_with_a_reason(path, store, monkeypatch):
    fill(store, seen_at=NOW - 100)
    DeadLetters(store).add([dead_letter(1)])
    page = opened(path, monkeypatch, "dead_letters")
    assert page.button(key="replay").disabled
    assert "These dead letters cannot be replayed now." in text_of(page)


def test_the_page_waits_for_a_missing_store(path, monkeypatch):
    page = opened(path, monkeypatch)
    assert not page.exception
    assert f"There is no store at {path} yet" in text_of(page)
    assert not path.exists()


def test_a_newer_or_damaged_store_shows_a_message(path, store, tmp_path, monkeypatch):
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE schema_migrations SET version = 999 WHERE version = 1")
    newer = opened(path, monkeypatch)
    assert not newer.exception
    assert "newer" in text_of(newer)
    damaged = tmp_path / "damaged.duckdb"
    damaged.write_bytes(b"not a database" * 1000)
    page = opened(damaged, monkeypatch)
    assert not page.exception
    assert "damaged" in text_of(page)


def test_an_action_excludes_dead_letters_that_arrived_after_it_was_offered(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = queries.dead_letters(store, DeadLetterFilter())
    DeadLetters(store).add([dead_letter(3)])
    scope = queries.scope(store, page.seen)
    assert scope.count == 2
    assert actions.clear(store, scope.about).text.startswith("Archived 2 ")
    assert DeadLetters(store).count(DeadLetterFilter()) == 1


def test_a_planned_replay_keeps_its_size_while_dead_letters_arrive(path, store, monkeypatch):
    fill(store, seen_at=time.time() + 60)
    DeadLetters(store).add([dead_letter(1, verdict="possibly_persisted")])
    page = opened(path, monkeypatch, "dead_letters")
    page.button(key="replay").click().run()
    assert page.button(key="replay_confirm").label == "Replay 1 now"
    DeadLetters(store).add([dead_letter(2)])
    (operation,) = queries.operations(store)
    checked = '{"topics": [], "at": 0}'
    store.execute(
        "replay_checked", operation=operation.operation_id, checked=checked, now=time.time(), message=""
    )
    reads.clear()
    page.run()
    assert page.button(key="replay").label == "Replay 2 …"
    assert page.button(key="replay_confirm").label == "Replay 1 now"
    page.button(key="replay_confirm").click().run()
    assert [operation.total for operation in queries.operations(store)] == [1]


def test_the_filter_options_keep_their_order_while_dead_letters_arrive(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3, topic="late")])
    before = queries.choices(store, "dead")
    DeadLetters(store).add([dead_letter(number, topic="late") for number in range(10, 15)])
    assert queries.choices(store, "dead") == before == (("late", "payments"), ("POLICY_VIOLATION",))


def test_the_dead_letter_alert_shows_the_current_number(store):
    raised = alert("high_dlq_size", "p", NOW, value=101, threshold=100)
    AlertLog(store).record([AlertChange("fired", raised)])
    DeadLetters(store).add([dead_letter(number) for number in range(120)])
    page = queries.overview(store, "5 min", NOW)
    assert [found["text"] for found in page.alerts] == [
        "120 dead letters are pending; dlq_size_threshold is 100"
    ]
    assert page.dead_total == 120

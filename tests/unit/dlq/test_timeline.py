"""The timeline of a dead letter: acceptance, attempts, failures, replays and operators' changes."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from producer_core import replay
from producer_core.cli import main
from producer_core.delivery.dead_letter import ProducerInfo, from_malformed_input
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.timeline import timeline
from producer_core.events import Attempt
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.pages import opened, text_of
from tests.fixtures.replays import CLUSTER, FakeClock, ScriptedSender, dead_letter, probe_with
from tests.support import eventually

ANY = DeadLetterFilter(state=None)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    return Store.open(tmp_path / "store.duckdb", clock=clock)


@pytest.fixture
def dead_letters(store, clock):
    return DeadLetters(store, clock=clock)


def replayed(store, clock, sender):
    operation = replay.plan(
        store, DeadLetterFilter(), who="ann", origin="cli", can_run=CLUSTER, reason="fixed", clock=clock
    )
    clock.forward(1)
    replay_runner(store, sender, probe=probe_with({}), clock=clock).run_one(operation.operation_id, 30)
    clock.forward(1)
    return operation.operation_id


def event_types(store, one):
    return [event.what for event in timeline(store, one.message_id)]


def test_a_new_dead_letter_has_acceptance_attempts_and_failure(store, dead_letters):
    one = dead_letter(
        1,
        attempts=(Attempt(1000.0, "_TIMED_OUT", "no answer"), Attempt(1001.0, "POLICY_VIOLATION", "refused")),
        failed_at=1001.0,
    )
    dead_letters.add([one])

    events = timeline(store, one.message_id)

    assert [event.what for event in events] == ["accepted", "attempt failed", "attempt failed", "dead"]
    assert events[-1].text == "rejected: The broker refused it."
    assert {event.text for event in events if event.what == "attempt failed"} == {
        "attempt 1: _TIMED_OUT: no answer",
        "attempt 2: POLICY_VIOLATION: refused",
    }


@pytest.mark.slow
def test_the_timeline_has_all_events_in_order(store, dead_letters, clock):
    one = dead_letter(1, accepted_at=999.0, failed_at=1000.0)
    dead_letters.add([one])
    failed = replayed(store, clock, ScriptedSender(refuse=[one.message_id]))
    clock.now = 7000.0
    dead_letters.archive(ANY, who="bob", origin="dashboard")
    clock.forward(1)
    dead_letters.restore(ANY, who="eve", origin="python")
    clock.forward(1)
    dead_letters.reveal([one.message_id], who="ann", origin="cli")
    clock.forward(1)
    sent = replayed(store, clock, ScriptedSender())

    events = timeline(store, one.message_id)

    assert [(event.what, event.who) for event in events] == [
        ("accepted", one.producer_id), ("attempt failed", None), ("dead", None), ("replay planned", "ann"),
        ("failed again", None), ("attempt failed", None), ("dead", None), ("archived", "bob"), ("restored", "eve"),
        ("revealed", "ann"), ("replay planned", "ann"), ("acknowledged", None),
    ]  # fmt: skip
    assert failed in events[3].text and events[3].text.endswith("via cli: fixed")
    assert events[4].text == f"replay {failed}: Broker: Policy violation"
    assert events[-1].text == f"replay {sent}: on its topic at partition 0, offset 1"
    assert [event.at for event in events] == sorted(event.at for event in events)


@pytest.mark.slow
def test_the_timeline_has_all_replays(store, dead_letters, clock):
    one = dead_letter(1)
    dead_letters.add([one])
    for _ in range(12):
        before = replay.plan(store, DeadLetterFilter(), who="ann", origin="cli", can_run=CLUSTER, clock=clock)
        replay.cancel(store, before.operation_id, who="ann", origin="cli", clock=clock)
        clock.forward(1)

    assert event_types(store, one).count("replay planned") == 12


def test_a_purged_dead_letter_keeps_its_timeline_without_content(store, dead_letters, clock):
    one = dead_letter(1)
    dead_letters.add([one])
    dead_letters.archive(ANY, who="ann", origin="cli")
    clock.forward(86401)
    dead_letters.purge(ANY, who="bob", origin="cli", confirmation="purge 1")

    events = timeline(store, one.message_id)

    assert [event.what for event in events] == ["accepted", "dead", "archived", "purged"]
    assert "Policy violation" not in repr(events)


def test_a_skipped_dead_letter_has_the_reason(store, dead_letters, clock):
    one = dead_letter(1, replayable=False)
    dead_letters.add([one])
    replayed(store, clock, ScriptedSender())

    skipped = timeline(store, one.message_id)[-1]

    assert skipped.what == "skipped" and "not replayable" in skipped.text


def malformed_line():
    producer = ProducerInfo("p-1", "host-1", "1", lambda: CLUSTER)
    return from_malformed_input(
        "m-1", "flights", producer=producer, key=None, raw=b"{oops", code="malformed", text="not JSON",
        source="line 17 of flights.csv", now=1000.0,
    )  # fmt: skip


def test_a_malformed_line_is_read_but_not_accepted_or_attempted(store, dead_letters):
    """Regression: the timeline contained an acceptance and an attempt."""
    dead_letters.add([malformed_line()])

    assert [(event.what, event.text) for event in timeline(store, "m-1")] == [
        ("read", "line 17 of flights.csv, for flights, on host-1"),
        ("malformed", "not JSON"),
        ("dead", "not_sent: It never became a message."),
    ]


@pytest.mark.slow
def test_the_page_of_a_malformed_line_has_no_broker_text_and_no_acceptance(store, dead_letters, monkeypatch):
    dead_letters.add([malformed_line()])
    page = opened("dead_letters", store.path, monkeypatch, letter="m-1", state="any")

    shown = text_of(page)
    assert "Input error" in shown and "<b>malformed</b>" in shown
    assert "broker's words" not in shown and "accepted" not in shown


@pytest.mark.slow
def test_a_dead_letter_in_a_replay_has_the_event_being_sent(store, dead_letters, clock):
    one, sender = dead_letter(1), ScriptedSender(hold=True)
    dead_letters.add([one])
    operation = replay.plan(store, DeadLetterFilter(), who="ann", origin="cli", can_run=CLUSTER, clock=clock)
    runner = replay_runner(
        store, sender, probe=probe_with({}), clock=clock, interval=0.01, poll_interval=0.01
    )
    runner.start()
    eventually(lambda: sender.sent, timeout=60)

    assert timeline(store, one.message_id)[-1].text == f"replay {operation.operation_id}"
    assert "being sent" in event_types(store, one)

    sender.release()
    eventually(lambda: "acknowledged" in event_types(store, one), timeout=60)
    runner.stop()


def test_one_change_adds_an_event_for_each_dead_letter(store, dead_letters):
    dead_letters.add([dead_letter(number) for number in range(300)])

    dead_letters.archive(DeadLetterFilter(), who="ann", origin="cli")

    assert {event_types(store, dead_letter(number))[-1] for number in (0, 150, 299)} == {"archived"}
    with store.borrow() as connection:
        assert connection.execute("SELECT count(*) FROM letter_events").fetchone() == (300,)


def test_an_unknown_id_has_no_timeline(store):
    assert timeline(store, "unknown") == ()


def test_show_prints_the_timeline_masked_unless_reveal_is_set(store, dead_letters):
    one = dead_letter(1, attempts=(Attempt(1000.0, "X", "refused for ann.lee@example.com"),))
    dead_letters.add([one])

    def show(*options):
        return CliRunner().invoke(main, ["dlq", "show", one.message_id, "--store", str(store.path), *options])

    assert "1970-01-01 00:16:40Z  attempt failed: attempt 1: X: refused for a***@example.com" in show().output
    events = json.loads(show("--json", "--reveal").stdout)["timeline"]
    assert events[-1]["what"] == "revealed" and events[-1]["at"] <= time.time()
    assert "ann.lee@example.com" in json.dumps(events)

"""The check before a replay: it continues by itself, or stops for a decision."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay import preflight
from producer_core.replay.dry_run import dry_run
from tests.fixtures.replays import (
    ALL,
    BY,
    EMBEDDED,
    buried,
    clicked,
    dead_letter,
    embedded_runner,
    embedded_sender,
)
from tests.support import eventually


@pytest.mark.slow
def test_where_nothing_is_to_be_asked_it_goes_on_by_itself(store, clock, sees):
    buried(store, 3, cluster_id=EMBEDDED)
    one, sends = clicked(store, clock), embedded_sender()

    assert replay.get(store, one).state == "checking"
    done = embedded_runner(store, sends, clock).run_one(one, 60)

    assert (done.state, done.acknowledged, len(sends.sent)) == ("done", 3, 3)
    assert "No problem found on orders" in done.checked


@pytest.mark.slow
@pytest.mark.parametrize(
    "found",
    [
        {"newer_keys": 1},
        {"newer_keys": 1, "cleanup_policy": "compact"},
        {"too_large": 1},
        {"partitions": None},
        {"lost_partitions": 1},
        {"complete": False},
        {"stopped": True},
    ],
)
def test_where_something_is_to_be_asked_nothing_is_sent_before_a_person_said_so(store, clock, sees, found):
    buried(store, 3, cluster_id=EMBEDDED)
    sees(**found)
    one, sends = clicked(store, clock), embedded_sender()

    waits = embedded_runner(store, sends, clock).run_one(one, 60)

    assert (waits.state, waits.owner, sends.sent) == ("ready", None, [])
    replay.go(store, one, **BY, newer="send")
    assert embedded_runner(store, sends, clock).run_one(one, 60).state == "done"


def test_letters_in_doubt_are_asked_about_too(store, clock, sees):
    DeadLetters(store).add([dead_letter(1, cluster_id=EMBEDDED, verdict="possibly_persisted")])
    one, sends = clicked(store, clock), embedded_sender()

    assert embedded_runner(store, sends, clock).run_one(one, 60).state == "ready"
    assert sends.sent == []


def test_a_dry_run_never_goes_by_itself(store, clock, sees):
    buried(store, 3, cluster_id=EMBEDDED)
    one, sends = clicked(store, clock, go_by_itself=False), embedded_sender()

    assert embedded_runner(store, sends, clock).run_one(one, 60).state == "ready"
    assert sends.sent == []


def test_a_runner_that_cannot_look_asks(store, clock):
    buried(store, 2, cluster_id=EMBEDDED)
    one, sends = clicked(store, clock), embedded_sender()

    waits = embedded_runner(store, sends, clock, client=None).run_one(one, 60)

    assert waits.state == "ready"
    run = dry_run(store, ALL, operation=waits)
    assert not run.safe
    assert any("could not be checked" in said for said in run.sentences)


@pytest.mark.slow
def test_looking_ahead_does_not_wait_for_a_replay_that_is_sent(store, clock, sees):
    buried(store, 2, cluster_id=EMBEDDED)
    DeadLetters(store).add([dead_letter(9, cluster_id=EMBEDDED, topic="late")])
    sends = embedded_sender(hold=True)
    running = embedded_runner(store, sends, clock)
    first = replay.plan(
        store, DeadLetterFilter(topic="orders"), **BY, can_run=EMBEDDED, clock=clock
    ).operation_id
    running.start()
    eventually(lambda: len(sends.sent) > 0)

    second = clicked(store, clock, DeadLetterFilter(topic="late"), go_by_itself=False)

    eventually(lambda: replay.get(store, second).state == "ready")
    assert replay.get(store, first).state == "running"
    sends.release()
    eventually(lambda: replay.get(store, first).ended)
    running.stop()


@pytest.mark.slow
def test_what_went_ahead_by_itself_waits_its_turn_to_be_sent(store, clock, sees):
    buried(store, 2, cluster_id=EMBEDDED)
    sends = embedded_sender()
    running = embedded_runner(store, sends, clock)
    running.start()

    one = clicked(store, clock)

    eventually(lambda: replay.get(store, one).ended)
    running.stop()
    assert replay.get(store, one).acknowledged == 2


@pytest.mark.slow
def test_what_waited_long_for_its_turn_is_looked_ahead_again_and_may_ask_then(store, clock, sees):
    buried(store, 3, cluster_id=EMBEDDED)
    one, sends = clicked(store, clock), embedded_sender()
    running = embedded_runner(store, sends, clock)
    running.poll(preflight=True)
    assert replay.get(store, one).state == "planned"
    sees(newer_keys=1)
    clock.forward(301)

    waits = running.run_one(one, 60)

    assert (waits.state, waits.started_at, sends.sent) == ("ready", None, [])


@pytest.mark.slow
def test_who_decided_is_not_asked_again(store, clock, sees):
    buried(store, 3, cluster_id=EMBEDDED)
    sees(newer_keys=1)
    one, sends = clicked(store, clock), embedded_sender()
    running = embedded_runner(store, sends, clock)
    running.run_one(one, 60)
    replay.go(store, one, **BY, newer="send", clock=clock)
    clock.forward(301)

    assert running.run_one(one, 60).acknowledged == 3


@pytest.mark.slow
def test_a_plan_of_which_nobody_is_asked_never_stops_to_ask(store, clock, sees):
    buried(store, 3, cluster_id=EMBEDDED)
    sees(newer_keys=1)
    one = replay.plan(store, ALL, **BY, can_run=EMBEDDED, clock=clock).operation_id

    assert embedded_runner(store, embedded_sender(), clock).run_one(one, 60).acknowledged == 3


@pytest.mark.slow
def test_the_time_in_which_a_person_decided_is_not_its_own(store, clock, sees):
    buried(store, 2, cluster_id=EMBEDDED)
    one = clicked(store, clock, go_by_itself=False)
    running = embedded_runner(store, embedded_sender(), clock)
    running.run_one(one, 60)
    clock.forward(3600)
    replay.go(store, one, **BY)
    begun = clock.now

    done = running.run_one(one, 60)

    assert done.started_at == begun


def test_one_that_was_looked_ahead_by_an_older_version_begins_when_it_goes(store, clock, sees):
    buried(store, 2, cluster_id=EMBEDDED)
    one = clicked(store, clock, go_by_itself=False)
    embedded_runner(store, embedded_sender(), clock).run_one(one, 60)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET started_at = 1.0")

    replay.go(store, one, **BY)

    assert replay.get(store, one).started_at is None


def test_one_that_is_cancelled_while_it_is_looked_ahead_ends_with_the_look(store, clock, monkeypatch, sees):
    buried(store, 1, cluster_id=EMBEDDED)
    one = clicked(store, clock)
    given = preflight.check(None, None)

    def cancelled_meanwhile(*_, **__):
        replay.cancel(store, one, **BY, clock=clock)
        return given

    monkeypatch.setattr(preflight, "check", cancelled_meanwhile)
    embedded_runner(store, embedded_sender(), clock).poll()

    assert replay.get(store, one).ended

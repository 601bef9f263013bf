"""The check before a replay: it continues automatically, or stops for a decision."""

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
    add_dead_letters,
    dead_letter,
    embedded_runner,
    embedded_sender,
    plan_one_click,
)
from tests.support import eventually


@pytest.mark.slow
def test_a_one_click_replay_without_findings_starts_automatically(store, clock, sees):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    one, sends = plan_one_click(store, clock), embedded_sender()

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
def test_a_one_click_replay_with_findings_sends_nothing_before_the_operator_confirms(
    store, clock, sees, found
):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    sees(**found)
    one, sends = plan_one_click(store, clock), embedded_sender()

    waits = embedded_runner(store, sends, clock).run_one(one, 60)

    assert (waits.state, waits.owner, sends.sent) == ("ready", None, [])
    replay.go(store, one, **BY, newer="send")
    assert embedded_runner(store, sends, clock).run_one(one, 60).state == "done"


def test_a_one_click_replay_of_doubtful_records_waits_for_confirmation(store, clock, sees):
    DeadLetters(store).add([dead_letter(1, cluster_id=EMBEDDED, verdict="possibly_persisted")])
    one, sends = plan_one_click(store, clock), embedded_sender()

    assert embedded_runner(store, sends, clock).run_one(one, 60).state == "ready"
    assert sends.sent == []


def test_a_dry_run_never_starts_automatically(store, clock, sees):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    one, sends = plan_one_click(store, clock, go_by_itself=False), embedded_sender()

    assert embedded_runner(store, sends, clock).run_one(one, 60).state == "ready"
    assert sends.sent == []


def test_a_runner_that_cannot_check_the_topics_waits_for_confirmation(store, clock):
    add_dead_letters(store, 2, cluster_id=EMBEDDED)
    one, sends = plan_one_click(store, clock), embedded_sender()

    waits = embedded_runner(store, sends, clock, client=None).run_one(one, 60)

    assert waits.state == "ready"
    run = dry_run(store, ALL, operation=waits)
    assert not run.safe
    assert any("could not be checked" in said for said in run.sentences)


@pytest.mark.slow
def test_a_preflight_does_not_wait_for_a_running_replay(store, clock, sees):
    add_dead_letters(store, 2, cluster_id=EMBEDDED)
    DeadLetters(store).add([dead_letter(9, cluster_id=EMBEDDED, topic="late")])
    sends = embedded_sender(hold=True)
    running = embedded_runner(store, sends, clock)
    first = replay.plan(
        store, DeadLetterFilter(topic="orders"), **BY, can_run=EMBEDDED, clock=clock
    ).operation_id
    running.start()
    eventually(lambda: len(sends.sent) > 0)

    second = plan_one_click(store, clock, DeadLetterFilter(topic="late"), go_by_itself=False)

    eventually(lambda: replay.get(store, second).state == "ready")
    assert replay.get(store, first).state == "running"
    sends.release()
    eventually(lambda: replay.get(store, first).ended)
    running.stop()


@pytest.mark.slow
def test_an_automatically_started_replay_runs_when_its_turn_comes(store, clock, sees):
    add_dead_letters(store, 2, cluster_id=EMBEDDED)
    sends = embedded_sender()
    running = embedded_runner(store, sends, clock)
    running.start()

    one = plan_one_click(store, clock)

    eventually(lambda: replay.get(store, one).ended)
    running.stop()
    assert replay.get(store, one).acknowledged == 2


@pytest.mark.slow
def test_a_replay_that_waited_too_long_is_checked_again_and_may_need_confirmation(store, clock, sees):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    one, sends = plan_one_click(store, clock), embedded_sender()
    running = embedded_runner(store, sends, clock)
    running.poll(preflight=True)
    assert replay.get(store, one).state == "planned"
    sees(newer_keys=1)
    clock.forward(301)

    waits = running.run_one(one, 60)

    assert (waits.state, waits.started_at, sends.sent) == ("ready", None, [])


@pytest.mark.slow
def test_a_confirmed_replay_is_not_checked_again(store, clock, sees):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    sees(newer_keys=1)
    one, sends = plan_one_click(store, clock), embedded_sender()
    running = embedded_runner(store, sends, clock)
    running.run_one(one, 60)
    replay.go(store, one, **BY, newer="send", clock=clock)
    clock.forward(301)

    assert running.run_one(one, 60).acknowledged == 3


@pytest.mark.slow
def test_a_plan_without_check_first_never_waits_for_confirmation(store, clock, sees):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    sees(newer_keys=1)
    one = replay.plan(store, ALL, **BY, can_run=EMBEDDED, clock=clock).operation_id

    assert embedded_runner(store, embedded_sender(), clock).run_one(one, 60).acknowledged == 3


@pytest.mark.slow
def test_the_time_spent_waiting_for_a_decision_is_not_part_of_the_duration(store, clock, sees):
    add_dead_letters(store, 2, cluster_id=EMBEDDED)
    one = plan_one_click(store, clock, go_by_itself=False)
    running = embedded_runner(store, embedded_sender(), clock)
    running.run_one(one, 60)
    clock.forward(3600)
    replay.go(store, one, **BY)
    begun = clock.now

    done = running.run_one(one, 60)

    assert done.started_at == begun


def test_go_resets_the_start_time_that_an_older_version_set_at_the_preflight(store, clock, sees):
    add_dead_letters(store, 2, cluster_id=EMBEDDED)
    one = plan_one_click(store, clock, go_by_itself=False)
    embedded_runner(store, embedded_sender(), clock).run_one(one, 60)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET started_at = 1.0")

    replay.go(store, one, **BY)

    assert replay.get(store, one).started_at is None


def test_a_replay_cancelled_during_its_preflight_ends_with_it(store, clock, monkeypatch, sees):
    add_dead_letters(store, 1, cluster_id=EMBEDDED)
    one = plan_one_click(store, clock)
    given = preflight.check(None, None)

    def cancelled_meanwhile(*_, **__):
        replay.cancel(store, one, **BY, clock=clock)
        return given

    monkeypatch.setattr(preflight, "check", cancelled_meanwhile)
    embedded_runner(store, embedded_sender(), clock).poll()

    assert replay.get(store, one).ended

"""The guard: a canary first, then at most twice what succeeded, and a stop when too many fail."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.guard import Guard, Rule
from producer_core.store import Store
from tests.unit.replaying import FakeClock, ScriptedSender, alive, buried, message_id

ACT = {"who": "ada", "origin": "cli"}


def heard(guard, *, good=0, bad=0):
    for _ in range(good):
        guard.heard(failed=False)
    for _ in range(bad):
        guard.heard(failed=True)
    return guard


def test_nothing_goes_beside_the_canary_until_it_is_settled():
    guard = Guard(Rule(canary=10))

    assert guard.room(0, 500) == 10
    assert guard.room(10, 490) == 0
    assert heard(guard, good=9).room(1, 499) == 0
    assert heard(guard, good=1).room(0, 500) == 21


def test_it_grows_with_what_succeeded_up_to_the_bound():
    guard = heard(Guard(Rule(canary=10)), good=10)

    steps = []
    while (room := guard.room(0, 500)) < 500:
        steps.append(room)
        heard(guard, good=room)

    assert steps == [21, 63, 189]


@pytest.mark.parametrize(("bad", "stops"), [(5, False), (6, True), (10, True)])
def test_a_canary_of_which_more_than_half_failed_stops_it(bad, stops):
    guard = heard(Guard(Rule(canary=10, percent=50)), good=10 - bad, bad=bad)

    assert (guard.verdict() is not None) is stops


def test_a_canary_that_cannot_succeed_any_more_stops_it_at_once():
    assert "6 of its first 6" in heard(Guard(Rule(canary=10, percent=50)), bad=6).verdict()


def test_the_latest_outcomes_count_later_on():
    guard = heard(Guard(Rule(canary=10, percent=20, last=50)), good=1000)

    assert heard(guard, bad=10).verdict() is None
    assert heard(guard, bad=1).verdict() == "Too many fail again: 11 of the last 50 records"


def test_a_hundred_percent_never_stops():
    assert heard(Guard(Rule(canary=0, percent=100, last=10)), bad=1000).verdict() is None


def test_without_a_canary_everything_may_go():
    assert Guard(Rule(canary=0)).room(0, 500) == 500


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def run(store, sender, **choices):
    clock = FakeClock()
    alive(store, clock())
    runner = replay.ReplayRunner(store, sender, clock=clock, interval=0.01, monotonic=clock, quiet=0.0)
    operation = replay.plan(store, DeadLetterFilter(), clock=clock, **ACT, **choices)
    return runner.run_one(operation.operation_id, 30)


def test_a_bad_replay_ends_at_its_canary(store):
    buried(store, 200)
    sender = ScriptedSender(refuse=[message_id(number) for number in range(200)])

    ended = run(store, sender, canary=5)

    assert (ended.state, ended.failed_again, ended.skipped) == ("stopped", 5, 195)
    assert len(sender.sent) == 5
    assert ended.message.startswith("Stopped itself. The canary failed: 5 of its first 5")
    assert DeadLetters(store).count(DeadLetterFilter()) == 200


def test_a_replay_that_turns_bad_stops_soon(store):
    buried(store, 400)
    sender = ScriptedSender(refuse=[message_id(number) for number in range(100, 400)])

    ended = run(store, sender, stop_last=20)

    assert ended.state == "stopped"
    assert ended.acknowledged == 100
    assert len(sender.sent) < 400
    assert ended.skipped == 400 - len(sender.sent)


def test_after_a_stop_the_same_selection_is_planned_anew(store):
    buried(store, 50)
    stopped = run(store, ScriptedSender(refuse=[message_id(number) for number in range(50)]))

    done = run(store, ScriptedSender())

    assert done.operation_id != stopped.operation_id
    assert (done.state, done.acknowledged) == ("done", 50)


def test_a_record_that_failed_in_three_replays_is_left_out_of_the_next(store):
    buried(store, 3)
    poison = message_id(1)
    for _ in range(3):
        run(store, ScriptedSender(refuse=[poison]))

    done = run(store, ScriptedSender())

    assert (done.acknowledged, done.skipped) == (0, 1)
    assert "quarantined: it failed again in 3 replays" in done.message
    assert DeadLetters(store).get(poison).quarantined
    assert run(store, ScriptedSender(), allow_quarantined=True).acknowledged == 1

"""The guard: a canary first, then at most twice the number that succeeded, and a stop when too many fail."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreLocked
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.replay import execution
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.doubtful_records import DoubtfulRecord
from producer_core.replay.guard import CanaryRule, ReplayGuard
from producer_core.replay.runner import SPARK_GROWTH
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import (
    FakeClock,
    ScriptedSender,
    add_dead_letters,
    dead_letter,
    message_id,
    probe_with,
    replay_record,
    write_heartbeat,
)

ACT = {"who": "ada", "origin": "cli"}


def heard(guard, *, good=0, bad=0):
    for _ in range(good):
        guard.record(failed=False)
    for _ in range(bad):
        guard.record(failed=True)
    return guard


def test_an_acknowledged_batch_counts_like_its_records():
    one_by_one, at_once = (ReplayGuard(CanaryRule(canary=3, percent=50, last=4)) for _ in range(2))
    heard(heard(one_by_one, bad=1), good=6)
    heard(at_once, bad=1).record_acknowledged(6)

    assert at_once.room(0, 1000) == one_by_one.room(0, 1000)
    assert heard(at_once, bad=3).verdict() == heard(one_by_one, bad=3).verdict()
    assert at_once.verdict() == "Too many records failed again: 3 of the last 4"


def test_no_record_is_sent_beyond_the_canary_until_it_is_settled():
    guard = ReplayGuard(CanaryRule(canary=10))

    assert guard.room(0, 500) == 10
    assert guard.room(10, 490) == 0
    assert heard(guard, good=9).room(1, 499) == 0
    assert heard(guard, good=1).room(0, 500) == 21


def test_the_window_grows_with_each_success_up_to_its_limit():
    guard = heard(ReplayGuard(CanaryRule(canary=10)), good=10)

    steps = []
    while (room := guard.room(0, 500)) < 500:
        steps.append(room)
        heard(guard, good=room)

    assert steps == [21, 63, 189]


def test_with_spark_the_window_grows_tenfold():
    guard = heard(ReplayGuard(CanaryRule(canary=10), growth=SPARK_GROWTH), good=10)

    assert guard.room(0, 10_000) == 101
    assert heard(guard, good=101).room(0, 10_000) == 1_111


@pytest.mark.parametrize(("bad", "stops"), [(5, False), (6, True), (10, True)])
def test_a_canary_with_too_many_failures_stops_the_replay(bad, stops):
    guard = heard(ReplayGuard(CanaryRule(canary=10, percent=50)), good=10 - bad, bad=bad)

    assert (guard.verdict() is not None) is stops


def test_a_canary_that_can_no_longer_succeed_stops_the_replay_at_once():
    assert "6 of its first 6" in heard(ReplayGuard(CanaryRule(canary=10, percent=50)), bad=6).verdict()
    only = heard(ReplayGuard(CanaryRule(canary=1, percent=50)), bad=1)
    assert only.verdict() == "The canary failed: its first record failed again"


def test_after_the_canary_only_the_latest_outcomes_count():
    guard = heard(ReplayGuard(CanaryRule(canary=10, percent=20, last=50)), good=1000)

    assert heard(guard, bad=10).verdict() is None
    assert heard(guard, bad=1).verdict() == "Too many records failed again: 11 of the last 50"


def test_a_stop_percentage_of_100_never_stops_the_replay():
    assert heard(ReplayGuard(CanaryRule(canary=0, percent=100, last=10)), bad=1000).verdict() is None


def test_without_a_canary_all_records_may_be_sent():
    assert ReplayGuard(CanaryRule(canary=0)).room(0, 500) == 500


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def run(store, sender, probe=None, **choices):
    clock = FakeClock()
    write_heartbeat(store, clock())
    runner = replay_runner(store, sender, probe=probe, clock=clock, interval=0.01, monotonic=clock, quiet=0.0)
    operation = replay.plan(store, DeadLetterFilter(), clock=clock, **ACT, **choices)
    return runner.run_one(operation.operation_id, 30)


@pytest.mark.slow
def test_a_failing_replay_stops_at_its_canary(store):
    add_dead_letters(store, 200)
    sender = ScriptedSender(refuse=[message_id(number) for number in range(200)])

    ended = run(store, sender, canary=5)

    assert (ended.state, ended.failed_again, ended.skipped) == ("stopped", 5, 195)
    assert len(sender.sent) == 5
    assert ended.message.startswith("Stopped automatically. The canary failed: 5 of its first 5")
    assert DeadLetters(store).count(DeadLetterFilter()) == 200


@pytest.mark.slow
def test_a_replay_that_starts_to_fail_stops_soon(store):
    add_dead_letters(store, 400)
    sender = ScriptedSender(refuse=[message_id(number) for number in range(100, 400)])

    ended = run(store, sender, stop_last=20)

    assert ended.state == "stopped"
    assert ended.acknowledged == 100
    assert len(sender.sent) < 400
    assert ended.skipped == 400 - len(sender.sent)


@pytest.mark.slow
def test_the_same_selection_can_be_planned_again_after_a_stop(store):
    add_dead_letters(store, 50)
    stopped = run(store, ScriptedSender(refuse=[message_id(number) for number in range(50)]))

    done = run(store, ScriptedSender())

    assert done.operation_id != stopped.operation_id
    assert (done.state, done.acknowledged) == ("done", 50)


@pytest.mark.slow
def test_a_record_that_failed_in_three_replays_is_quarantined(store):
    add_dead_letters(store, 3)
    poison = message_id(1)
    for _ in range(3):
        run(store, ScriptedSender(refuse=[poison]))

    done = run(store, ScriptedSender())

    assert (done.acknowledged, done.skipped) == (0, 1)
    assert "quarantined after failing again in 3 replays" in done.message
    assert DeadLetters(store).get(poison).quarantined
    assert run(store, ScriptedSender(), allow_quarantined=True).acknowledged == 1


def claims_of(store):
    clock = FakeClock()
    write_heartbeat(store, clock())
    operation = replay.plan(store, DeadLetterFilter(), clock=clock, **ACT)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=15.0, clock=clock)
    assert claims.take()
    return claims


def test_claims_stay_within_the_memory_limit(store):
    add_dead_letters(store, 5, value=b"x" * 1000)
    claims = claims_of(store)

    assert len(claims.settle_and_claim([], want=5, busy=False, room=2500).dead_letters) == 2
    assert claims.settle_and_claim([], want=5, busy=True, room=500).dead_letters == ()
    assert len(claims.settle_and_claim([], want=5, busy=False, room=500).dead_letters) == 1


def test_a_doubtful_record_is_not_claimed_while_an_old_attempt_may_still_arrive(store):
    add_dead_letters(store, 3)
    DeadLetters(store).add([dead_letter(3, verdict="possibly_persisted", failed_at=4990.0)])
    claims = claims_of(store)

    early = claims.settle_and_claim([], want=10, busy=False, everything_may_go=False).dead_letters
    assert [one.message_id for one in early] == [message_id(number) for number in range(3)]
    assert len(claims.settle_and_claim([], want=10, busy=True).dead_letters) == 1


@pytest.mark.slow
def test_claimed_records_are_sent_once_an_unavailable_store_is_back(store, monkeypatch):
    add_dead_letters(store, 5, verdict="possibly_persisted")
    asked = iter([StoreLocked(), StoreLocked()])
    look = DoubtfulRecord.search_first

    def away_at_first(self, dead_letters, following=()):
        if (error := next(asked, None)) is not None:
            raise error
        return look(self, dead_letters, following)

    monkeypatch.setattr(DoubtfulRecord, "search_first", away_at_first)
    assert run(store, ScriptedSender(), probe=probe_with({}), inconclusive="send").acknowledged == 5


@pytest.mark.slow
def test_a_committed_but_unconfirmed_claim_is_resumed(store, monkeypatch):
    add_dead_letters(store, 5)
    failing = iter([True])
    claim = ReplayClaims.settle_and_claim

    def breaks_after_the_commit(self, outcomes, **choices):
        turn = claim(self, outcomes, **choices)
        if turn.dead_letters and next(failing, False):
            raise StoreLocked
        return turn

    monkeypatch.setattr(ReplayClaims, "settle_and_claim", breaks_after_the_commit)
    assert run(store, ScriptedSender(), probe=probe_with({})).acknowledged == 5


def test_a_runner_without_a_preflight_check_leaves_the_decision_to_the_operator(store):
    add_dead_letters(store, 3)
    ready = run(store, ScriptedSender(), check_first=True)

    assert (ready.state, ready.owner) == ("ready", None)
    assert "The topics were not checked" in ready.message


def away(times, asked):
    """Return a probe that is inconclusive `times` times, and then finds no record."""

    def probe(topic, ids, since_ms):
        asked.append(list(ids))
        passing = len(asked) <= times
        outcome = "inconclusive" if passing else "not_found"
        return {one: ProbeResult(outcome, None, None, 0, "a broker is away", passing) for one in asked[-1]}

    return probe


@pytest.mark.slow
def test_a_probe_is_retried_while_a_broker_is_unavailable(store, monkeypatch):
    monkeypatch.setattr(execution, "REST", 0.01)
    add_dead_letters(store, 3, verdict="possibly_persisted")
    asked = []

    assert run(store, ScriptedSender(), probe=away(4, asked), inconclusive="send").acknowledged == 3
    assert len(asked) == 5


@pytest.mark.slow
def test_records_that_no_probe_can_resolve_are_left_to_the_operator(store, monkeypatch):
    monkeypatch.setattr(execution, "REST", 0.01)
    add_dead_letters(store, 3, verdict="possibly_persisted")

    ended = run(store, ScriptedSender(), probe=away(1000, []))

    assert (ended.acknowledged, ended.skipped) == (0, 3)
    assert {one["verdict"] for one in replay.doubtful(store, ended.operation_id)} == {"inconclusive"}


def test_slow_probes_have_an_outcome_for_every_topic():
    now = [0.0]

    def slow(topic, ids, since_ms):
        now[0] += 50.0
        return {one: ProbeResult("not_found", None, None, 0, "") for one in ids}

    doubt = DoubtfulRecord(slow, monotonic=lambda: now[0])
    dead_letters = [replay_record(n, verdict="possibly_persisted", topic=f"t{n}") for n in range(3)]

    sendable, outcomes = doubt.search_first(dead_letters)
    assert (len(sendable), {one.verdict for one in outcomes}) == (0, {"inconclusive"})


def test_records_that_are_on_their_topic_do_not_wait_for_a_canary(store, monkeypatch):
    """Regression: they were claimed ten at a time, because none of them counts as sent."""
    ids = add_dead_letters(store, 300, verdict="possibly_persisted")
    claims = []
    claim = ReplayClaims.settle_and_claim

    def counted(self, outcomes, **choices):
        result = claim(self, outcomes, **choices)
        claims.append(len(result.dead_letters))
        return result

    monkeypatch.setattr(ReplayClaims, "settle_and_claim", counted)
    sender = ScriptedSender()
    ended = run(store, sender, probe=probe_with(dict.fromkeys(ids, "found")))

    assert (ended.landed, sender.sent) == (300, [])
    assert len([count for count in claims if count]) == 1


def test_the_canary_is_sent_alone_although_more_records_are_claimed(store):
    ids = add_dead_letters(store, 100, verdict="possibly_persisted")
    found = dict.fromkeys(ids[::2], "found")
    sender = ScriptedSender(refuse=ids)
    ended = run(store, sender, probe=probe_with(found), inconclusive="send")

    assert (ended.state, len(sender.sent)) == ("stopped", 10)
    assert ended.landed >= 9

"""Operations: pause, resume, cancel, and the end of an abandoned replay."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ReplayError
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.operation import DECIDE_WITHIN, end_abandoned, expire_undecided
from producer_core.replay.pace import ReplayPace
from tests.fixtures.replays import (
    ALL,
    BY,
    CLUSTER,
    EMBEDDED,
    ScriptedSender,
    add_dead_letters,
    dead_letter,
    embedded_runner,
    planned,
    runner,
    states,
    write_heartbeat,
)
from tests.support import eventually


def abandoned(store, clock, *, claim):
    """Return a replay that was cancelled while a runner owned it; the runner then died."""
    operation = replay.plan(store, ALL, **BY, can_run=EMBEDDED, clock=clock)
    claims = ReplayClaims(store, operation.operation_id, "dead/1", lease=15.0, clock=clock)
    assert claims.take()
    if claim:
        claims.settle_and_claim([], want=2, busy=False)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    assert not replay.get(store, operation.operation_id).ended
    return operation.operation_id


def test_a_cancelled_operation_of_a_dead_runner_ends_once_its_lease_expires(store, clock):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    one = abandoned(store, clock, claim=False)

    assert end_abandoned(store, clock.now) == []
    clock.forward(16)
    (ended,) = end_abandoned(store, clock.now)

    assert (ended.operation_id, ended.state, ended.ended) == (one, "cancelled", True)
    assert DeadLetters(store).count(ALL) == 3
    assert end_abandoned(store, clock.now) == []


def test_records_claimed_by_a_dead_runner_are_inconclusive_if_no_runner_can_probe_them(store, clock):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    one = abandoned(store, clock, claim=True)
    clock.forward(16)
    write_heartbeat(store, clock.now, cluster=EMBEDDED)
    assert end_abandoned(store, clock.now) == []  # a live runner looks for them on the topic

    clock.forward(61)
    (ended,) = end_abandoned(store, clock.now)

    assert ended.ended
    assert DeadLetters(store).count(DeadLetterFilter(verdict="inconclusive")) == 2
    assert replay.get(store, one).skipped == 3


def test_a_runner_of_any_cluster_ends_a_cancelled_operation(store, clock):
    add_dead_letters(store, 1, cluster_id=EMBEDDED)
    one = abandoned(store, clock, claim=False)
    clock.forward(100)
    elsewhere = ScriptedSender()
    running = embedded_runner(store, elsewhere, clock)

    running.start()
    eventually(lambda: replay.get(store, one).ended)
    running.stop()


def test_a_paused_replay_resumes_at_another_rate_that_its_runner_reads(store, clock):
    add_dead_letters(store, 3)
    operation = planned(store, clock, rate=1000.0)
    claims = ReplayClaims(store, operation.operation_id, "r-1", lease=15.0, clock=clock)
    assert claims.take()
    assert claims.settle_and_claim([], want=0, busy=True).rate == 1000.0

    replay.pause(store, operation.operation_id, **BY)
    replay.resume(store, operation.operation_id, rate=2.0, **BY)

    assert replay.get(store, operation.operation_id).rate == 2.0
    assert claims.settle_and_claim([], want=0, busy=True).rate == 2.0
    pace = ReplayPace(1000.0, now=0.0)
    pace.follow(2.0)
    assert pace.room(now=60.0, most=100) == 2


def test_a_rate_changes_only_with_a_valid_resume(store, clock):
    add_dead_letters(store, 3)
    operation = planned(store, clock, rate=9.0)

    with pytest.raises(ReplayError, match="Cannot resume replay"):
        replay.resume(store, operation.operation_id, rate=2.0, **BY)
    replay.pause(store, operation.operation_id, **BY)
    with pytest.raises(ReplayError, match="must be above 0"):
        replay.resume(store, operation.operation_id, rate=0.0, **BY)

    paused = replay.get(store, operation.operation_id)
    assert (paused.state, paused.rate) == ("paused", 9.0)
    assert replay.resume(store, operation.operation_id, **BY).rate == 9.0


@pytest.mark.slow
def test_cancelling_a_dry_run_reports_records_that_another_replay_delivered(store, clock):
    """Regression: it reported "4 skipped: cancelled before being sent", but 2 of them had been replayed elsewhere."""
    add_dead_letters(store, 2)
    DeadLetters(store).add([dead_letter(8, topic="payments"), dead_letter(9, topic="payments")])
    dry = replay.plan(store, ALL, **BY, can_run=CLUSTER, check_first=True, clock=clock)
    runner(store, ScriptedSender(), clock).run_one(
        planned(store, clock, DeadLetterFilter(topic="payments")).operation_id, 60
    )

    done = replay.cancel(store, dry.operation_id, **BY, clock=clock)

    assert done.message == (
        "Cancelled: replayed 0 of 4; 2 skipped: cancelled before being sent; "
        "2 skipped: delivered by another replay"
    )
    assert sorted(states(store).values()) == ["dead"] * 2 + ["replayed"] * 2


def test_a_replay_cancelled_before_it_ran_ends_at_once(store, clock):
    add_dead_letters(store, 3)
    operation = planned(store, clock)

    done = replay.cancel(store, operation.operation_id, **BY, clock=clock)

    assert done.ended
    assert done.skipped == 3
    assert DeadLetters(store).count(ALL) == 3


def test_a_replay_for_a_vanished_cluster_does_not_block_a_new_one(store, clock):
    add_dead_letters(store, 3, cluster_id="gone")
    stale = replay.plan(store, ALL, **BY, can_run="gone", clock=clock)
    ReplayClaims(store, stale.operation_id, "dead", lease=15, clock=clock).take()
    ReplayClaims(store, stale.operation_id, "dead", lease=15, clock=clock).settle_and_claim(
        [], want=2, busy=False
    )
    DeadLetters(store).add([dead_letter(9)])

    fresh = planned(store, clock)
    assert fresh.operation_id != stale.operation_id
    clock.forward(3600)
    done = replay.cancel(store, stale.operation_id, **BY, clock=clock)

    assert done.ended
    assert done.skipped == 3
    assert DeadLetters(store).count_by(ALL, "verdict") == {"inconclusive": 2, "rejected": 2}


def test_an_invalid_state_change_is_refused(store, clock):
    add_dead_letters(store, 1)
    operation = planned(store, clock)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)

    with pytest.raises(ReplayError, match="is cancelled"):
        replay.pause(store, operation.operation_id, **BY)
    with pytest.raises(ReplayError, match="no replay nonsense"):
        replay.get(store, "nonsense")


@pytest.mark.slow
def test_every_action_is_audited(store, clock):
    add_dead_letters(store, 2)
    operation = planned(store, clock)
    replay.pause(store, operation.operation_id, **BY)
    replay.resume(store, operation.operation_id, **BY)
    runner(store, ScriptedSender(), clock).run_one(operation.operation_id, 60)

    actions = [(row["action"], row["who"]) for row in store.rows("audit_latest")]

    assert sorted(actions) == [
        ("replay", "ann"),
        ("replay_end", "ann"),
        ("replay_pause", "ann"),
        ("replay_resume", "ann"),
    ]


def of(store, **chosen):
    return [one.operation_id for one in replay.list_operations(store, **chosen)]


def test_replays_are_listed_by_the_application_of_their_records_or_of_their_selection(store, clock):
    DeadLetters(store).add([dead_letter(1, application="checkout", topic="orders")])
    mixed = planned(store, clock).operation_id
    DeadLetters(store).add(
        [dead_letter(2, application="billing", topic="bills"), dead_letter(3, topic="bills")]
    )
    clock.forward(1)
    bills = planned(store, clock, DeadLetterFilter(topic="bills")).operation_id
    clock.forward(1)
    named = planned(store, clock, DeadLetterFilter(application="billing")).operation_id

    assert of(store, application="checkout") == [mixed]
    assert of(store, application="billing") == [named, bills]
    assert of(store, application="") == [bills]
    assert of(store, application="none of these") == []
    assert [one.operation_id for one in replay.live(store, application="billing")] == [bills, named]
    assert of(store) == [named, bills, mixed] and of(store, limit=1) == [named]
    with store.borrow(write=True) as connection:
        connection.execute("DELETE FROM dead_letters")  # as retention does
    assert of(store, application="billing") == [named]


def test_replays_are_listed_by_cluster(store, clock):
    add_dead_letters(store, 1)
    one = planned(store, clock).operation_id

    assert of(store, cluster=CLUSTER) == [one] and of(store, cluster="another") == []
    assert [found.operation_id for found in replay.live(store, cluster=CLUSTER)] == [one]
    assert replay.live(store, cluster="another") == []
    assert of(store, cluster=CLUSTER, application="checkout") == []


def undecided(store, clock):
    """Return a replay that waits for a decision."""
    operation = planned(store, clock, check_first=True)
    store.execute(
        "replay_checked",
        operation=operation.operation_id,
        checked='{"topics": [], "at": 0}',
        now=clock.now,
        message="",
        goes=False,
    )
    assert replay.get(store, operation.operation_id).state == "ready"
    return operation.operation_id


@pytest.mark.parametrize("sweep", [expire_undecided, end_abandoned])
def test_a_replay_without_a_decision_expires_and_its_records_remain_dead_letters(store, clock, sweep):
    add_dead_letters(store, 3)
    one = undecided(store, clock)
    clock.forward(DECIDE_WITHIN)
    assert sweep(store, clock.now) == []

    clock.forward(1)
    (expired,) = sweep(store, clock.now)

    assert (expired.operation_id, expired.state, expired.ended) == (one, "cancelled", True)
    assert expired.message == "Expired: replayed 0 of 3; 3 skipped: the plan expired without a decision"
    assert set(states(store).values()) == {"dead"}
    assert sweep(store, clock.now) == []
    with pytest.raises(ReplayError, match="it is cancelled"):
        replay.go(store, one, **BY)


def test_an_expired_replay_is_planned_again(store, clock):
    add_dead_letters(store, 3)
    one = undecided(store, clock)
    assert planned(store, clock, check_first=True).operation_id == one

    clock.forward(DECIDE_WITHIN + 1)
    again = planned(store, clock, check_first=True)

    assert (again.operation_id != one, again.state, again.total) == (True, "checking", 3)
    assert replay.get(store, one).ended


def test_a_confirmed_replay_does_not_expire(store, clock):
    add_dead_letters(store, 3)
    one = undecided(store, clock)
    replay.go(store, one, **BY, clock=clock)

    clock.forward(DECIDE_WITHIN + 1)

    assert expire_undecided(store, clock.now) == []
    assert replay.get(store, one).state == "planned"

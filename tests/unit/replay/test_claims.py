"""Claims: each record is claimed by one runner at a time and settled once."""

from __future__ import annotations

import threading

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.events import Attempt
from producer_core.replay.claims import LeaseState, ReplayClaims
from producer_core.replay.outcome import FailedReplay, RecordOutcome
from tests.fixtures.replays import (
    ALL,
    BY,
    ScriptedSender,
    add_dead_letters,
    claimed_by_a_dead_runner,
    counts,
    dead_letter,
    planned,
    records,
    runner,
    states,
)
from tests.support import eventually


@pytest.mark.slow
def test_a_record_archived_after_the_plan_is_skipped_with_the_reason(store, clock):
    ids = add_dead_letters(store, 3)
    operation = planned(store, clock)

    DeadLetters(store).archive(DeadLetterFilter(ids=(ids[0],)), **BY)
    done = runner(store, ScriptedSender(), clock).run_one(operation.operation_id, 60)

    assert done.message == "Replayed 2 of 3; 1 skipped: archived after the replay was planned"
    assert states(store)[ids[0]] == "archived"


@pytest.mark.slow
def test_a_record_being_replayed_cannot_be_archived(store, clock):
    add_dead_letters(store, 2)
    sender = ScriptedSender(hold=True)
    planned(store, clock)
    running = runner(store, sender, clock)
    running.start()
    eventually(lambda: len(sender.sent) == 2)

    assert DeadLetters(store).archive(ALL, **BY).count == 0

    sender.release()
    running.stop()
    assert set(states(store).values()) == {"replayed"}


@pytest.mark.slow
def test_two_selections_that_overlap_send_each_record_once(store, clock):
    ids = add_dead_letters(store, 4)
    one = planned(store, clock)
    two = planned(store, clock, DeadLetterFilter(topic="orders"))
    sender = ScriptedSender()
    running = runner(store, sender, clock)

    running.run_one(one.operation_id, 60)
    second = running.run_one(two.operation_id, 60)

    assert sorted(sender.sent_ids) == sorted(ids)
    assert second.message == "Replayed 0 of 4; 4 skipped: delivered by another replay"


def test_claimed_but_unsent_records_return_to_dead_after_a_cancel(store, clock):
    ids = add_dead_letters(store, 3)
    operation = planned(store, clock)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=15, clock=clock)
    claims.take()
    claims.settle_and_claim([], want=2, busy=False)

    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    assert claims.settle_and_claim(
        [RecordOutcome(one, "pending") for one in ids[:2]], want=5, busy=False
    ).over

    assert states(store) == dict.fromkeys(ids, "dead")
    assert replay.get(store, operation.operation_id).skipped == 3


def test_a_runner_that_lost_its_lease_settles_nothing(store, clock):
    add_dead_letters(store, 3)
    operation, dead, (first, second) = claimed_by_a_dead_runner(store, clock)
    took = LeaseState(operation.operation_id, "dead", replay.get(store, operation.operation_id).lease_until)
    assert ReplayClaims(store, operation.operation_id, "heir", lease=15, clock=clock).take(took)

    turn = dead.settle_and_claim(
        [RecordOutcome(first, "acknowledged"), RecordOutcome(second, "pending")], want=5, busy=False
    )

    assert turn.over
    assert turn.dead_letters == ()
    assert {records(store, operation)[one][0] for one in (first, second)} == {"claimed"}
    assert counts(replay.get(store, operation.operation_id)) == (0, 0, 0, 0)


@pytest.mark.slow
def test_two_concurrent_runners_never_claim_the_same_record(store, clock):
    ids = add_dead_letters(store, 40)
    operation = planned(store, clock)
    senders = [ScriptedSender(f"s{number}") for number in range(3)]
    threads = [
        threading.Thread(
            target=runner(store, sender, clock, in_flight=5).run_one, args=(operation.operation_id, 20)
        )
        for sender in senders
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    sent = [one for sender in senders for one in sender.sent_ids]
    assert sorted(sent) == sorted(ids)
    assert replay.get(store, operation.operation_id).message == "Replayed 40 of 40"


def test_a_failure_reported_twice_is_counted_once(store, clock):
    ids = add_dead_letters(store, 1)
    operation = planned(store, clock)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=15, clock=clock)
    claims.take()
    claims.settle_and_claim([], want=1, busy=False)
    death = dead_letter(0, failed_at=6000.0, attempts=(Attempt(6000.0, "X", "x"),))
    outcome = RecordOutcome(ids[0], "failed", "x", death=FailedReplay.again(death))

    claims.settle_and_claim([outcome], want=0, busy=True)
    claims.settle_and_claim([outcome], want=0, busy=True)

    assert replay.get(store, operation.operation_id).failed_again == 1
    assert DeadLetters(store).get(ids[0]).replay_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("dead_letters", [10, 40])
def test_a_record_of_many_earlier_replays_is_claimed_and_settled_in_the_next_one(store, clock, dead_letters):
    """An index's limit once hid its newest record behind the others: it was sent, and its outcome was lost."""
    add_dead_letters(store, dead_letters)
    for _ in range(11):
        before = planned(store, clock)
        replay.cancel(store, before.operation_id, **BY, clock=clock)
    operation = planned(store, clock)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=15, clock=clock)
    assert claims.take()

    while claimed := claims.settle_and_claim([], want=10, busy=False).dead_letters:
        claims.settle_and_claim(
            [RecordOutcome(one.message_id, "acknowledged", None, 0, 1) for one in claimed], want=0, busy=True
        )

    assert replay.get(store, operation.operation_id).acknowledged == dead_letters
    assert DeadLetters(store).count(DeadLetterFilter(state="replayed")) == dead_letters


def test_a_released_record_is_claimed_again_in_another_transaction(store, clock):
    """In the same transaction, a trigger rewrote its row, and DuckDB damaged the file when it was claimed again."""
    add_dead_letters(store, 3)
    claims = ReplayClaims(store, planned(store, clock).operation_id, "me", lease=15, clock=clock)
    claims.take()
    first, second, _ = claims.settle_and_claim([], want=3, busy=False).dead_letters

    given_back = [
        RecordOutcome(first.message_id, "acknowledged"),
        RecordOutcome(second.message_id, "pending"),
    ]
    assert claims.settle_and_claim(given_back, want=3, busy=True).dead_letters == ()
    assert claims.settle_and_claim([], want=3, busy=True).dead_letters == (second,)

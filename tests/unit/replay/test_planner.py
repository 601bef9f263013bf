"""Plans: the frozen selection, its order, refusals, and joins with running replays."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import NoReplayRunner, OtherCluster
from tests.fixtures.replays import (
    ALL,
    BY,
    CLUSTER,
    ScriptedSender,
    add_dead_letters,
    counts,
    dead_letter,
    message_id,
    planned,
    records,
    runner,
    states,
    write_heartbeat,
)


def test_planning_the_same_selection_twice_returns_the_same_operation(store, clock):
    add_dead_letters(store, 3)

    first = planned(store, clock)
    second = planned(store, clock)

    assert second == first
    assert len(replay.list(store)) == 1


def test_an_undecided_plan_is_replaced_when_more_dead_letters_match(store, clock):
    """Regression: yesterday's plan was returned, without the dead letters since then and without a note."""
    add_dead_letters(store, 3)
    first = planned(store, clock, check_first=True)
    assert planned(store, clock, check_first=True) == first
    DeadLetters(store).add([dead_letter(9)])

    anew = planned(store, clock, check_first=True)

    assert (first.total, anew.total) == (3, 4)
    assert planned(store, clock, check_first=True) == anew
    assert planned(store, clock, check_first=True, limit=3) == first


def test_a_started_replay_stays_the_same_when_more_dead_letters_match(store, clock):
    add_dead_letters(store, 3)
    first = planned(store, clock)
    DeadLetters(store).add([dead_letter(9)])

    assert planned(store, clock) == first


@pytest.mark.slow
def test_planning_after_the_end_creates_a_new_operation(store, clock):
    add_dead_letters(store, 1)
    first = planned(store, clock)
    runner(store, ScriptedSender(), clock).run_one(first.operation_id, 60)

    add_dead_letters(store, 2)

    assert planned(store, clock).operation_id != first.operation_id


@pytest.mark.slow
def test_a_plan_freezes_its_message_ids(store, clock):
    old = add_dead_letters(store, 2)
    operation = planned(store, clock)

    DeadLetters(store).add([dead_letter(7)])
    sender = ScriptedSender()
    done = runner(store, sender, clock).run_one(operation.operation_id, 60)

    assert sorted(sender.sent_ids) == sorted(old)
    assert done.total == 2
    assert states(store)[message_id(7)] == "dead"


@pytest.mark.slow
def test_the_oldest_records_are_sent_first_with_sequences_ordered_numerically(store, clock):
    DeadLetters(store).add([dead_letter(number, accepted_at=1.0) for number in (10, 9, 100, 1)])
    sender = ScriptedSender()

    runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert sender.sent_ids == [message_id(number) for number in (1, 9, 10, 100)]


@pytest.mark.slow
def test_a_limit_leaves_the_remaining_dead_letters_unchanged(store, clock):
    add_dead_letters(store, 5)

    done = runner(store, ScriptedSender(), clock).run_one(planned(store, clock, limit=2).operation_id, 60)

    assert done.message == "Replayed 2 of 2"
    assert DeadLetters(store).count(ALL) == 3


def test_an_empty_selection_is_a_result_and_not_an_error(store, clock):
    operation = planned(store, clock)

    assert (operation.state, operation.message) == ("done", "Nothing to replay")


def test_without_a_runner_a_replay_is_refused_with_a_fix(store, clock):
    add_dead_letters(store, 1)

    with pytest.raises(NoReplayRunner, match="Start a producer"):
        replay.plan(store, ALL, **BY, clock=clock)

    write_heartbeat(store, clock() - 16)
    assert replay.runners(store, clock()) == []
    write_heartbeat(store, clock() - 1)
    assert replay.runners(store, clock()) == ["p-1"]
    assert replay.plan(store, ALL, **BY, clock=clock).state == "planned"


@pytest.mark.slow
def test_malformed_and_quarantined_dead_letters_are_skipped_with_the_reason(store, clock):
    add_dead_letters(store, 1)
    DeadLetters(store).add(
        [dead_letter(1, replayable=False), dead_letter(2, quarantined=True, replay_count=4)]
    )
    sender = ScriptedSender()

    done = runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert counts(done) == (1, 0, 0, 2)
    assert sender.sent_ids == [message_id(0)]
    assert "not replayable" in records(store, done)[message_id(1)][1]
    assert "4 replays" in records(store, done)[message_id(2)][1]


@pytest.mark.slow
def test_a_quarantined_dead_letter_is_sent_on_request(store, clock):
    DeadLetters(store).add([dead_letter(2, quarantined=True)])

    done = runner(store, ScriptedSender(), clock).run_one(
        planned(store, clock, allow_quarantined=True).operation_id, 60
    )

    assert done.acknowledged == 1


@pytest.mark.slow
def test_dead_letters_of_another_cluster_are_refused_without_to_cluster(store, clock):
    add_dead_letters(store, 2, cluster_id="elsewhere")

    with pytest.raises(OtherCluster, match="elsewhere"):
        planned(store, clock)
    told = planned(store, clock, to_cluster=CLUSTER)

    assert runner(store, ScriptedSender(), clock).run_one(told.operation_id, 60).acknowledged == 2


@pytest.mark.slow
def test_only_dead_letters_of_this_cluster_are_sent(store, clock):
    add_dead_letters(store, 1)
    DeadLetters(store).add([dead_letter(1, cluster_id="elsewhere"), dead_letter(2, cluster_id="elsewhere")])

    done = runner(store, ScriptedSender(), clock).run_one(planned(store, clock).operation_id, 60)

    assert counts(done) == (1, 0, 0, 2)
    assert "another cluster (elsewhere)" in done.message


def test_a_selection_within_a_running_replay_joins_it_on_request(store, clock):
    ids = add_dead_letters(store, 4)
    whole = planned(store, clock)
    some = DeadLetterFilter(ids=tuple(ids[:2]))

    assert planned(store, clock, some, join=True).operation_id == whole.operation_id
    assert [(one.operation_id, count) for one, count in replay.under_way(store, some)] == [
        (whole.operation_id, 2)
    ]
    assert planned(store, clock, some).operation_id != whole.operation_id


def test_a_selection_with_more_records_is_a_separate_replay(store, clock):
    add_dead_letters(store, 2)
    first = planned(store, clock, DeadLetterFilter(until=1002.0))
    DeadLetters(store).add([dead_letter(9)])

    both = planned(store, clock, join=True)

    assert both.operation_id != first.operation_id
    assert both.total == 3
    replay.cancel(store, first.operation_id, **BY, clock=clock)
    assert [count for _, count in replay.under_way(store, ALL)] == [3]


def test_a_dead_letter_of_an_unknown_cluster_that_may_be_persisted_is_sent_only_with_to_cluster(store, clock):
    add_dead_letters(store, 2, cluster_id="", verdict="possibly_persisted")
    DeadLetters(store).add([dead_letter(number, cluster_id="", verdict="not_sent") for number in (7, 8)])

    asked = planned(store, clock)
    told = planned(store, clock, DeadLetterFilter(verdict="possibly_persisted"), to_cluster=CLUSTER)

    assert (asked.total, asked.skipped) == (4, 2)
    assert (told.total, told.skipped) == (2, 0)

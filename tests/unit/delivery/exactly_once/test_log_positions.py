"""The settled offsets of each partition, and the records found again after a crash."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as some

from producer_core.delivery.exactly_once.log_positions import (
    LogPosition,
    LogPositions,
    advance,
    shard_ids,
    shard_note,
    split,
)
from producer_core.messages import MessageIds
from tests.fixtures.exactly_once import SESSION, T0, T1, MemoryProgress, delivery


def position(offset, partition=0):
    return LogPosition("t", partition, offset)


@pytest.fixture
def progress():
    return MemoryProgress()


@pytest.fixture
def positions(progress):
    return LogPositions(progress, MessageIds(SESSION))


def test_a_commit_is_settled_in_one_step(positions, progress):
    positions.settle(
        [(delivery(1), position(10)), (delivery(2, 1), position(5, 1)), (delivery(3), position(11))]
    )

    assert progress.calls == [((1, 2, 3), {T0: 11, T1: 5})]


def test_a_message_of_another_session_advances_the_offset_and_settles_no_sequence(positions, progress):
    positions.settle([(delivery(9, session=uuid.UUID(int=8)), position(10))])

    assert progress.calls == [((), {T0: 10})]


def test_a_found_record_settled_as_a_duplicate_does_not_hold_the_offset(positions, progress):
    positions.start_partitions({T0: 4})
    positions.set_found(T0, [(delivery(1).id, position(5))])
    progress.settle((1,), {})  # a duplicate of another process's message: it gets no report of its own

    positions.settle([(delivery(2), position(7))])

    assert progress.offsets == {T0: 7}


def test_a_found_record_without_a_report_holds_the_offset(positions, progress):
    positions.start_partitions({T0: 4})
    positions.set_found(T0, [(delivery(1).id, position(5)), (delivery(2).id, position(7))])

    positions.settle([(delivery(3), position(9))])
    assert progress.offsets == {T0: 4}  # rule a: 5 and 7 must be found again after another crash
    positions.settle([(delivery(2), position(7))])
    assert progress.offsets == {T0: 4}
    positions.settle([(delivery(1), position(5))])
    assert progress.offsets == {T0: 9}


def test_after_a_second_crash_only_unsettled_records_are_found_again(progress):
    first = LogPositions(progress, MessageIds(SESSION))
    first.start_partitions({T0: 4})
    first.set_found(T0, [(delivery(1).id, position(5))])
    first.settle([(delivery(3), position(9))])

    second = LogPositions(progress, MessageIds(SESSION))
    second.set_found(T0, [(delivery(1).id, position(5)), (delivery(3).id, position(9))])

    assert second.position(delivery(1).id) == position(5)
    assert second.position(delivery(3).id) is None
    second.settle([(delivery(1), position(5))])
    assert progress.offsets == {T0: 9}


def test_a_replay_in_flight_of_a_settled_message_is_found(positions, progress):
    progress.done.add(1)
    positions.set_found(T0, [(delivery(1).id, position(5))], {delivery(1).id})

    assert split([delivery(1), delivery(2)], positions)[0][0][1] == position(5)


def test_a_recreated_topic_starts_from_its_new_offsets(positions, progress):
    positions.settle([(delivery(1), position(100))])
    positions.restart_partitions({T0: -1})
    positions.settle([(delivery(2), position(0))])

    assert progress.offsets == {T0: 0}


@pytest.mark.slow
@given(
    some.lists(some.tuples(some.integers(0, 30), some.booleans()), unique_by=lambda one: one[0], min_size=1),
    some.randoms(),
)
def test_the_settled_offset_never_passes_an_unsettled_record(records, rng):
    progress = MemoryProgress()
    positions = LogPositions(progress, MessageIds(SESSION))
    positions.start_partitions({T0: -1})
    unsettled = {offset for offset, is_found in records if is_found}
    positions.set_found(T0, [(delivery(offset).id, position(offset)) for offset in sorted(unsettled)])
    rng.shuffle(records)
    for offset, _ in records:
        positions.settle([(delivery(offset), position(offset))])
        unsettled.discard(offset)
        assert all(progress.offsets[T0] < one for one in unsettled)
    assert progress.offsets[T0] == max(offset for offset, _ in records)


def test_the_settled_offset_never_decreases():
    assert advance(10, 5, ()) == 10
    assert advance(10, 20, [15, 17]) == 14
    assert advance(10, 20, [5]) == 10


def test_every_id_that_may_have_left_an_open_transaction_is_fenced():
    progress = MemoryProgress()
    progress.settle((), {T0: 5, **shard_note("a", 4, {})})
    assert shard_note("a", 2, progress.offsets) == {}
    assert shard_ids("a", 2, progress.offsets) == ["a-0", "a-1", "a-2", "a-3"]
    assert shard_ids("b", 1, progress.offsets) == ["b-0", "a-0", "a-1", "a-2", "a-3"]
    assert LogPositions(progress, MessageIds(SESSION)).partitions() == [T0]

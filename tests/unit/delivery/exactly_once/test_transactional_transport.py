"""Exactly-once delivery without a broker: settled offsets, causes of failures, ownership, and batches."""

from __future__ import annotations

import uuid
from collections import deque

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as some

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.log_positions import (
    LogPosition,
    LogPositions,
    advance,
    shard_ids,
    shard_note,
    split,
)
from producer_core.delivery.exactly_once.merged_statistics import merge_statistics
from producer_core.delivery.exactly_once.ownership import Ownership
from producer_core.delivery.exactly_once.shard import QueuedMessage, take_batch
from producer_core.delivery.exactly_once.transaction_errors import (
    failure_cause,
    id_was_taken,
    is_permanent_rejection,
)
from producer_core.delivery.exactly_once.transactional_client import check_settings
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.errors import ConfigError
from producer_core.messages import MessageIds, Placement, id_bytes
from tests.fixtures.exactly_once import MemoryProgress

SESSION = uuid.UUID(int=7)
T0, T1 = ("t", 0), ("t", 1)


def delivery(seq, partition=0, session=SESSION):
    return Delivery(id_bytes(session, seq), seq, "t", None, b"x", [], Placement(partition))


def position(offset, partition=0):
    return LogPosition("t", partition, offset)


@pytest.fixture
def progress():
    return MemoryProgress()


@pytest.fixture
def positions(progress):
    return LogPositions(progress, MessageIds(SESSION))


# positions and settled offsets


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


# causes of failed transactions

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def test_the_only_record_of_a_partition_is_rejected_and_other_partitions_are_not():
    cause = failure_cause(
        [
            (delivery(1), TOO_LARGE),
            (delivery(2, 1), KafkaError(KafkaError._PURGE_QUEUE)),
            (delivery(3, 1), None),
        ],
        {T0: 1, T1: 2},
    )
    assert [one.seq for one, _ in cause.rejected] == [1]
    assert cause.limits == {}


def test_a_rejected_batch_makes_the_next_one_smaller_and_rejects_no_record_yet():
    cause = failure_cause([(delivery(seq), TOO_LARGE) for seq in range(10)], {T0: 10})
    assert cause.rejected == []
    assert cause.limits == {T0: 5}
    assert failure_cause([(delivery(seq), TOO_LARGE) for seq in range(2)], {T0: 2}).limits == {T0: 1}


def test_a_code_for_unaffected_records_identifies_the_rejected_one():
    spared = KafkaError(KafkaError._INVALID_DIFFERENT_RECORD)
    cause = failure_cause(
        [
            (delivery(1), spared),
            (delivery(2), KafkaError(KafkaError.INVALID_RECORD)),
            (delivery(3), spared),
        ],
        {T0: 3},
    )
    assert [one.seq for one, _ in cause.rejected] == [2]
    assert cause.limits == {}


def test_a_rejection_of_the_whole_topic_applies_to_all_records_at_once():
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    cause = failure_cause([(delivery(seq), denied) for seq in range(10)], {T0: 10})
    assert len(cause.rejected) == 10


@pytest.mark.parametrize(
    "code",
    ["_MSG_TIMED_OUT", "_PURGE_QUEUE", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_TXN_STATE", "_STATE",
     "DUPLICATE_SEQUENCE_NUMBER", "NOT_LEADER_FOR_PARTITION", "_TRANSPORT", "CONCURRENT_TRANSACTIONS",
     "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"],
)  # fmt: skip
def test_these_codes_are_not_permanent_rejections(code):
    assert not is_permanent_rejection(KafkaError(getattr(KafkaError, code)))


def test_a_fence_means_a_lost_id_unless_the_own_transaction_exceeded_its_timeout():
    def taken_by_other(code="_FENCED", lasted=1.0):
        return id_was_taken(code, lasted=lasted, timeout=10.0)

    assert taken_by_other()
    assert taken_by_other("INVALID_PRODUCER_EPOCH")
    assert not taken_by_other(lasted=8.0)
    assert not taken_by_other("INVALID_TXN_STATE")


# lost transactional ids


def test_a_lost_id_is_taken_back_three_times_a_day_after_longer_and_longer_waits():
    now = [0.0]
    ownership = Ownership(0, clock=lambda: now[0])

    waits = [ownership.record_loss(explained=False) for _ in range(5)]

    assert waits[3:] == [None, None]
    assert 0 < waits[0] < waits[1] < waits[2] < 5
    now[0] = 23 * 3600.0
    assert ownership.record_loss(explained=False) is None
    now[0] = 25 * 3600.0
    assert ownership.record_loss(explained=False) is not None


def test_a_loss_explained_by_a_late_own_request_stops_counting_after_ten_minutes():
    now = [0.0]
    ownership = Ownership(0, clock=lambda: now[0])
    assert None not in [ownership.record_loss(explained=True) for _ in range(3)]
    assert ownership.record_loss(explained=True) is None

    now[0] = 601.0

    assert ownership.record_loss(explained=True) is not None


def test_each_further_shard_has_more_attempts_so_that_one_id_decides():
    attempts = [Ownership(number).attempts for number in range(4)]
    assert attempts == sorted(set(attempts))


# transactions


def queue(*partitions, size=10):
    return deque(
        QueuedMessage(delivery(seq, partition), 0.0, size) for seq, partition in enumerate(partitions)
    )


def sequences(batch):
    return [one.delivery.seq for one in batch]


def test_a_batch_is_limited_by_count_and_bytes_and_has_at_least_one_message():
    assert sequences(take_batch(queue(0, 0, 0), 2, 1000, {})[0]) == [0, 1]
    assert sequences(take_batch(queue(0, 0, 0), 9, 15, {})[0]) == [0, 1]
    assert sequences(take_batch(queue(0, 0, 0, size=99), 9, 15, {})[0]) == [0]


@given(some.lists(some.integers(0, 2), max_size=40), some.integers(1, 20), some.integers(1, 3))
def test_a_limited_partition_keeps_its_order_and_loses_no_message(partitions, messages, limit):
    waiting, done = queue(*partitions), []
    while waiting:
        batch, passed = take_batch(waiting, messages, 10_000, {T0: limit})
        waiting.extendleft(reversed(passed))
        assert batch
        assert sum(one.partition == T0 for one in batch) <= limit
        done += batch
    for partition in (T0, T1, ("t", 2)):
        seqs = [one.delivery.seq for one in done if one.partition == partition]
        assert seqs == sorted(seqs)
    assert sorted(sequences(done)) == list(range(len(partitions)))


def test_the_message_timeout_is_shorter_than_the_transaction_timeout():
    assert transactional_settings({"message.timeout.ms": 86_400_000})["transaction.timeout.ms"] == 90_000
    assert transactional_settings({"message.timeout.ms": 0})["message.timeout.ms"] == 60_000
    chosen = transactional_settings({"message.timeout.ms": 120_000, "transaction.timeout.ms": 10_000})
    assert (chosen["message.timeout.ms"], chosen["transaction.timeout.ms"]) == (7500, 10_000)
    check_settings(chosen)


def test_settings_that_exclude_transactions_are_rejected_at_once():
    with pytest.raises(ConfigError, match=r"max\.in\.flight"):
        check_settings(transactional_settings({"max.in.flight.requests.per.connection": 50}))


def test_statistics_of_several_clients_are_merged_into_those_of_one():
    def one(state, count, partition, transmitted):
        return {
            "msg_cnt": count,
            "eos": {"producer_epoch": count},
            "brokers": {"b/1": {"state": state, "req": {"Produce": count}}},
            "topics": {"t": {"partitions": {partition: {"txmsgs": transmitted}, "9": {"txmsgs": 0}}}},
        }

    merged = merge_statistics([one("DOWN", 2, "0", 5), one("UP", 3, "1", 7)])

    assert (merged["msg_cnt"], "eos" in merged) == (5, False)
    assert merged["brokers"]["b/1"] == {"state": "UP", "req": {"Produce": 5}}
    assert {number: part["txmsgs"] for number, part in merged["topics"]["t"]["partitions"].items()} == {
        "0": 5, "1": 7, "9": 0,
    }  # fmt: skip

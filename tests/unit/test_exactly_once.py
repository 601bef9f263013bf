"""Exactly once without a broker: what is settled when, who is to blame, and a shard over a log in memory."""

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
    advanced,
    shard_ids,
    shard_note,
    split,
)
from producer_core.delivery.exactly_once.merged_statistics import merged
from producer_core.delivery.exactly_once.ownership import Ownership
from producer_core.delivery.exactly_once.shard import WaitingMessage, take
from producer_core.delivery.exactly_once.transaction_errors import (
    failure_cause,
    lost_the_id,
    refused_for_good,
)
from producer_core.delivery.exactly_once.transactional_client import check
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.errors import ConfigError
from producer_core.messages import MessageIds, Placement, id_bytes
from tests.exactly_once import MemoryProgress

SESSION = uuid.UUID(int=7)
T0, T1 = ("t", 0), ("t", 1)


def delivery(seq, partition=0, session=SESSION):
    return Delivery(id_bytes(session, seq), seq, "t", None, b"x", [], Placement(partition))


def place(offset, partition=0):
    return LogPosition("t", partition, offset)


@pytest.fixture
def progress():
    return MemoryProgress()


@pytest.fixture
def ledger(progress):
    return LogPositions(progress, MessageIds(SESSION))


# the ledger


def test_a_commit_is_written_down_in_one_step(ledger, progress):
    ledger.settle([(delivery(1), place(10)), (delivery(2, 1), place(5, 1)), (delivery(3), place(11))])

    assert progress.calls == [((1, 2, 3), {T0: 11, T1: 5})]


def test_a_message_of_another_session_moves_the_offset_and_settles_no_sequence(ledger, progress):
    ledger.settle([(delivery(9, session=uuid.UUID(int=8)), place(10))])

    assert progress.calls == [((), {T0: 10})]


def test_what_was_found_and_is_settled_as_a_copy_does_not_hold_the_offset(ledger, progress):
    ledger.begin({T0: 4})
    ledger.found(T0, [(delivery(1).id, place(5))])
    progress.settle((1,), {})  # another process had sent an equal one: it never comes back

    ledger.settle([(delivery(2), place(7))])

    assert progress.offsets == {T0: 7}


def test_what_was_found_and_has_not_come_back_holds_the_offset(ledger, progress):
    ledger.begin({T0: 4})
    ledger.found(T0, [(delivery(1).id, place(5)), (delivery(2).id, place(7))])

    ledger.settle([(delivery(3), place(9))])
    assert progress.offsets == {T0: 4}  # rule a: 5 and 7 must be found again after another crash
    ledger.settle([(delivery(2), place(7))])
    assert progress.offsets == {T0: 4}
    ledger.settle([(delivery(1), place(5))])
    assert progress.offsets == {T0: 9}


def test_after_a_second_crash_it_is_found_again_and_what_is_settled_is_not(progress):
    first = LogPositions(progress, MessageIds(SESSION))
    first.begin({T0: 4})
    first.found(T0, [(delivery(1).id, place(5))])
    first.settle([(delivery(3), place(9))])

    second = LogPositions(progress, MessageIds(SESSION))
    second.found(T0, [(delivery(1).id, place(5)), (delivery(3).id, place(9))])

    assert second.place(delivery(1).id) == place(5)
    assert second.place(delivery(3).id) is None
    second.settle([(delivery(1), place(5))])
    assert progress.offsets == {T0: 9}


def test_a_replay_of_a_settled_message_that_is_on_its_way_is_found_too(ledger, progress):
    progress.done.add(1)
    ledger.found(T0, [(delivery(1).id, place(5))], {delivery(1).id})

    assert split([delivery(1), delivery(2)], ledger)[0][0][1] == place(5)


def test_a_topic_that_was_made_anew_begins_anew(ledger, progress):
    ledger.settle([(delivery(1), place(100))])
    ledger.begin_again({T0: -1})
    ledger.settle([(delivery(2), place(0))])

    assert progress.offsets == {T0: 0}


@given(
    some.lists(some.tuples(some.integers(0, 30), some.booleans()), unique_by=lambda one: one[0], min_size=1),
    some.randoms(),
)
def test_the_offset_never_passes_what_is_not_settled(records, chance):
    progress = MemoryProgress()
    ledger = LogPositions(progress, MessageIds(SESSION))
    ledger.begin({T0: -1})
    open_ones = {offset for offset, is_found in records if is_found}
    ledger.found(T0, [(delivery(offset).id, place(offset)) for offset in sorted(open_ones)])
    chance.shuffle(records)
    for offset, _ in records:
        ledger.settle([(delivery(offset), place(offset))])
        open_ones.discard(offset)
        assert all(progress.offsets[T0] < one for one in open_ones)
    assert progress.offsets[T0] == max(offset for offset, _ in records)


def test_an_offset_never_goes_back():
    assert advanced(10, 5, ()) == 10
    assert advanced(10, 20, [15, 17]) == 14
    assert advanced(10, 20, [5]) == 10


def test_every_id_that_may_have_left_a_transaction_is_fenced():
    progress = MemoryProgress()
    progress.settle((), {T0: 5, **shard_note("a", 4, {})})
    assert shard_note("a", 2, progress.offsets) == {}
    assert shard_ids("a", 2, progress.offsets) == ["a-0", "a-1", "a-2", "a-3"]
    assert shard_ids("b", 1, progress.offsets) == ["b-0", "a-0", "a-1", "a-2", "a-3"]
    assert LogPositions(progress, MessageIds(SESSION)).partitions() == [T0]


# who is to blame

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def test_alone_in_its_partition_it_is_guilty_and_its_neighbours_elsewhere_are_not():
    judged = failure_cause(
        [
            (delivery(1), TOO_LARGE),
            (delivery(2, 1), KafkaError(KafkaError._PURGE_QUEUE)),
            (delivery(3, 1), None),
        ],
        {T0: 1, T1: 2},
    )
    assert [one.seq for one, _ in judged.guilty] == [1]
    assert judged.limits == {}


def test_of_a_refused_batch_nobody_is_guilty_yet_and_the_next_is_smaller():
    judged = failure_cause([(delivery(seq), TOO_LARGE) for seq in range(10)], {T0: 10})
    assert judged.guilty == []
    assert judged.limits == {T0: 5}
    assert failure_cause([(delivery(seq), TOO_LARGE) for seq in range(2)], {T0: 2}).limits == {T0: 1}


def test_the_broker_may_tell_the_guilty_from_its_neighbours():
    spared = KafkaError(KafkaError._INVALID_DIFFERENT_RECORD)
    judged = failure_cause(
        [
            (delivery(1), spared),
            (delivery(2), KafkaError(KafkaError.INVALID_RECORD)),
            (delivery(3), spared),
        ],
        {T0: 3},
    )
    assert [one.seq for one, _ in judged.guilty] == [2]
    assert judged.limits == {}


def test_what_the_whole_topic_is_refused_for_needs_no_search():
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    judged = failure_cause([(delivery(seq), denied) for seq in range(10)], {T0: 10})
    assert len(judged.guilty) == 10


@pytest.mark.parametrize(
    "code",
    ["_MSG_TIMED_OUT", "_PURGE_QUEUE", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_TXN_STATE", "_STATE",
     "DUPLICATE_SEQUENCE_NUMBER", "NOT_LEADER_FOR_PARTITION", "_TRANSPORT", "CONCURRENT_TRANSACTIONS",
     "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"],
)  # fmt: skip
def test_these_say_nothing_against_a_message(code):
    assert not refused_for_good(KafkaError(getattr(KafkaError, code)))


def test_a_fence_means_a_lost_id_unless_our_own_transaction_outlived_its_timeout():
    def judge(code="_FENCED", lasted=1.0):
        return lost_the_id(code, lasted=lasted, timeout=10.0)

    assert judge()
    assert judge("INVALID_PRODUCER_EPOCH")
    assert not judge(lasted=8.0)
    assert not judge("INVALID_TXN_STATE")


# a transactional id that was lost


def test_a_lost_id_is_taken_back_three_times_a_day_each_time_after_a_longer_wait():
    now = [0.0]
    ownership = Ownership(0, clock=lambda: now[0])

    waits = [ownership.lost(explained=False) for _ in range(5)]

    assert waits[3:] == [None, None]
    assert 0 < waits[0] < waits[1] < waits[2] < 5
    now[0] = 23 * 3600.0
    assert ownership.lost(explained=False) is None
    now[0] = 25 * 3600.0
    assert ownership.lost(explained=False) is not None


def test_a_loss_that_our_own_late_request_explains_is_forgotten_after_ten_minutes():
    now = [0.0]
    ownership = Ownership(0, clock=lambda: now[0])
    assert None not in [ownership.lost(explained=True) for _ in range(3)]
    assert ownership.lost(explained=True) is None

    now[0] = 601.0

    assert ownership.lost(explained=True) is not None


def test_each_further_shard_has_more_attempts_so_that_one_id_decides():
    attempts = [Ownership(number).attempts for number in range(4)]
    assert attempts == sorted(set(attempts))


# transactions


def queue(*partitions, size=10):
    return deque(
        WaitingMessage(delivery(seq, partition), 0.0, size) for seq, partition in enumerate(partitions)
    )


def taken(batch):
    return [one.delivery.seq for one in batch]


def test_a_transaction_is_bounded_by_count_and_bytes_and_takes_at_least_one():
    assert taken(take(queue(0, 0, 0), 2, 1000, {})[0]) == [0, 1]
    assert taken(take(queue(0, 0, 0), 9, 15, {})[0]) == [0, 1]
    assert taken(take(queue(0, 0, 0, size=99), 9, 15, {})[0]) == [0]


@given(some.lists(some.integers(0, 2), max_size=40), some.integers(1, 20), some.integers(1, 3))
def test_a_limited_partition_keeps_its_order_and_nothing_is_lost(partitions, messages, limit):
    waiting, done = queue(*partitions), []
    while waiting:
        batch, passed = take(waiting, messages, 10_000, {T0: limit})
        waiting.extendleft(reversed(passed))
        assert batch
        assert sum(one.where == T0 for one in batch) <= limit
        done += batch
    for where in (T0, T1, ("t", 2)):
        seqs = [one.delivery.seq for one in done if one.where == where]
        assert seqs == sorted(seqs)
    assert sorted(taken(done)) == list(range(len(partitions)))


def test_a_message_times_out_before_its_transaction_does():
    assert transactional_settings({"message.timeout.ms": 86_400_000})["transaction.timeout.ms"] == 90_000
    assert transactional_settings({"message.timeout.ms": 0})["message.timeout.ms"] == 60_000
    chosen = transactional_settings({"message.timeout.ms": 120_000, "transaction.timeout.ms": 10_000})
    assert (chosen["message.timeout.ms"], chosen["transaction.timeout.ms"]) == (7500, 10_000)
    check(chosen)


def test_settings_that_no_transaction_can_have_are_refused_at_once():
    with pytest.raises(ConfigError, match=r"max\.in\.flight"):
        check(transactional_settings({"max.in.flight.requests.per.connection": 50}))


def test_statistics_of_several_clients_are_those_of_one():
    def one(state, count, partition, transmitted):
        return {
            "msg_cnt": count,
            "eos": {"producer_epoch": count},
            "brokers": {"b/1": {"state": state, "req": {"Produce": count}}},
            "topics": {"t": {"partitions": {partition: {"txmsgs": transmitted}, "9": {"txmsgs": 0}}}},
        }

    both = merged([one("DOWN", 2, "0", 5), one("UP", 3, "1", 7)])

    assert (both["msg_cnt"], "eos" in both) == (5, False)
    assert both["brokers"]["b/1"] == {"state": "UP", "req": {"Produce": 5}}
    assert {number: part["txmsgs"] for number, part in both["topics"]["t"]["partitions"].items()} == {
        "0": 5, "1": 7, "9": 0,
    }  # fmt: skip

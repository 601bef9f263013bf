"""Which record of a failed transaction was rejected, and whether the id was taken."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from producer_core.delivery.exactly_once.transaction_errors import (
    failure_cause,
    id_was_taken,
    is_permanent_rejection,
)
from tests.fixtures.exactly_once import T0, T1, delivery

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


def test_a_fence_means_a_lost_id_unless_our_transaction_exceeded_its_timeout():
    def taken_by_other(code="_FENCED", lasted=1.0):
        return id_was_taken(code, lasted=lasted, timeout=10.0)

    assert taken_by_other()
    assert taken_by_other("INVALID_PRODUCER_EPOCH")
    assert not taken_by_other(lasted=8.0)
    assert not taken_by_other("INVALID_TXN_STATE")

"""The records of a rejected transaction that can never be written."""

from __future__ import annotations

from confluent_kafka import KafkaError

from producer_core.replay.rejections import refused_by_client, rejected_by_broker, rejected_ids
from tests.fixtures.replays import replay_record

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
UNAUTHORIZED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
FIRST, SECOND = replay_record(0), replay_record(1)


def test_a_record_is_rejected_if_it_was_alone_on_its_topic():
    other = replay_record(2, topic="payments")
    errors = dict.fromkeys([FIRST.message_id, other.message_id], TOO_LARGE)

    assert rejected_ids([FIRST, SECOND, other], errors) == {other.message_id}
    assert rejected_ids([FIRST], errors) == {FIRST.message_id}


def test_an_error_of_a_topic_rejects_all_its_records():
    errors = dict.fromkeys([FIRST.message_id, SECOND.message_id], UNAUTHORIZED)

    assert rejected_ids([FIRST, SECOND], errors) == {FIRST.message_id, SECOND.message_id}


def test_the_verdict_says_where_the_record_was_rejected():
    outcomes = [refused_by_client(FIRST, TOO_LARGE, 1.0), rejected_by_broker(SECOND, TOO_LARGE, 1.0)]

    assert [(one.ending, one.death.verdict) for one in outcomes] == [
        ("failed", "not_sent"),
        ("failed", "rejected"),
    ]

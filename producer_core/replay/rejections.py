"""The records that a client or a broker rejects, and their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.exactly_once.transaction_errors import rejects_whole_topic
from producer_core.events import Verdict
from producer_core.replay.outcome import RecordOutcome
from producer_core.replay.strategy import died_again

_REFUSED_BY_CLIENT = "The client refused the record before sending it."
_REFUSED = "The broker rejected the record and its transaction was aborted; the record is not on its topic."


def rejected_ids(batch: Sequence[ReplayRecord], refused: Mapping[str, KafkaError]) -> set[str]:
    """Return the ids of records that can never be written.

    Brokers reject whole batches. With several records of a topic in the batch the next transactions are smaller,
    until the bad record is alone.
    """
    many = Counter(dead_letter.topic for dead_letter in batch)
    return {
        dead_letter.message_id
        for dead_letter in batch
        if (error := refused.get(dead_letter.message_id))
        and (rejects_whole_topic(error) or many[dead_letter.topic] == 1)
    }


def refused_by_client(record: ReplayRecord, error: KafkaError, now: float) -> RecordOutcome:
    return _failed(record, error, now, "not_sent", _REFUSED_BY_CLIENT)


def rejected_by_broker(record: ReplayRecord, error: KafkaError, now: float) -> RecordOutcome:
    return _failed(record, error, now, "rejected", _REFUSED)


def _failed(
    record: ReplayRecord, error: KafkaError, now: float, verdict: Verdict, reason: str
) -> RecordOutcome:
    death = died_again(record, error, now, verdict, reason)
    return RecordOutcome(record.message_id, "failed", death.error_text, death=death)

"""What a read-back found of records that may have been written, and what follows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.exactly_once.log_positions import PartitionId
from producer_core.kafka.newer_keys import NEWER_RECORD
from producer_core.replay.outcome import RecordOutcome

_REMOVED = (
    "inconclusive, so not sent; choose to send it anyway (--inconclusive send). It may have been among the records of {topic} that retention, or the "
    "topic's deletion, removed before anybody looked."
)
_COMPACTED = f"inconclusive, so not sent. {NEWER_RECORD}"


@dataclass(frozen=True)
class ProbeOutcome:
    """Where records were found, of which partitions a part was removed before it could be read, and which of them have
    a newer record of their key on a topic that may be compacted."""

    found: Mapping[str, tuple[int, int]]
    removed: frozenset[PartitionId] = frozenset()
    newer: frozenset[str] = frozenset()

    def may_be_gone(self, dead_letter: ReplayRecord) -> bool:
        """Not found, and perhaps it was there."""
        if dead_letter.message_id in self.found:
            return False
        return dead_letter.message_id in self.newer or any(
            topic == dead_letter.topic and dead_letter.partition in (None, partition)
            for topic, partition in self.removed
        )


def afterwards(dead_letter: ReplayRecord, sought: ProbeOutcome) -> RecordOutcome:
    if dead_letter.message_id in sought.found:
        return _landed(dead_letter, sought.found[dead_letter.message_id])
    return (
        inconclusive(dead_letter, sought)
        if sought.may_be_gone(dead_letter)
        else RecordOutcome(dead_letter.message_id, "pending")
    )


def inconclusive(dead_letter: ReplayRecord, sought: ProbeOutcome) -> RecordOutcome:
    text = _COMPACTED if dead_letter.message_id in sought.newer else _REMOVED.format(topic=dead_letter.topic)
    return RecordOutcome(dead_letter.message_id, "skipped", text, verdict="inconclusive")


def _landed(dead_letter: ReplayRecord, place: tuple[int, int]) -> RecordOutcome:
    partition, offset = place
    text = f"Its sender died before it could say so; it is on {dead_letter.topic}, partition {partition}, at offset {offset}."
    return RecordOutcome(dead_letter.message_id, "landed", text, partition, offset, verdict="found")

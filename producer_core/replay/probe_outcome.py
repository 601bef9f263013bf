"""What a read-back found of records that may have been written, and what follows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.exactly_once.log_positions import Where
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
    removed: frozenset[Where] = frozenset()
    newer: frozenset[str] = frozenset()

    def may_be_gone(self, letter: ReplayRecord) -> bool:
        """Not found, and perhaps it was there."""
        if letter.message_id in self.found:
            return False
        return letter.message_id in self.newer or any(
            topic == letter.topic and letter.partition in (None, partition)
            for topic, partition in self.removed
        )


def afterwards(letter: ReplayRecord, sought: ProbeOutcome) -> RecordOutcome:
    if letter.message_id in sought.found:
        return _landed(letter, sought.found[letter.message_id])
    return (
        inconclusive(letter, sought)
        if sought.may_be_gone(letter)
        else RecordOutcome(letter.message_id, "pending")
    )


def inconclusive(letter: ReplayRecord, sought: ProbeOutcome) -> RecordOutcome:
    text = _COMPACTED if letter.message_id in sought.newer else _REMOVED.format(topic=letter.topic)
    return RecordOutcome(letter.message_id, "skipped", text, verdict="inconclusive")


def _landed(letter: ReplayRecord, place: tuple[int, int]) -> RecordOutcome:
    partition, offset = place
    text = f"Its sender died before it could say so; it is on {letter.topic}, partition {partition}, at offset {offset}."
    return RecordOutcome(letter.message_id, "landed", text, partition, offset, verdict="found")

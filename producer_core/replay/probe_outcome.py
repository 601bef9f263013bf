"""The result of searching the topics for records that may have been written, and the outcomes that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.exactly_once.log_positions import PartitionId
from producer_core.kafka.newer_keys import NEWER_RECORD
from producer_core.replay.outcome import RecordOutcome

_REMOVED = (
    "inconclusive, so not sent; to send anyway, use --inconclusive send. Retention or deletion removed records of "
    "{topic} before the search, possibly including this message."
)
_COMPACTED = f"inconclusive, so not sent. {NEWER_RECORD}"


@dataclass(frozen=True)
class ProbeOutcome:
    """The result of a search on the topics.

    `found` holds partition and offset by message id, `removed` the partitions of which a part was removed before it was
    read, `newer` the ids of records with a newer record of their key on a topic that may be compacted.
    """

    found: Mapping[str, tuple[int, int]]
    removed: frozenset[PartitionId] = frozenset()
    newer: frozenset[str] = frozenset()

    def may_be_gone(self, dead_letter: ReplayRecord) -> bool:
        """Return whether the record was not found although it may have been on the topic."""
        if dead_letter.message_id in self.found:
            return False
        return dead_letter.message_id in self.newer or any(
            topic == dead_letter.topic and dead_letter.partition in (None, partition)
            for topic, partition in self.removed
        )


def outcome_after_search(dead_letter: ReplayRecord, probe: ProbeOutcome) -> RecordOutcome:
    if dead_letter.message_id in probe.found:
        return _landed(dead_letter, probe.found[dead_letter.message_id])
    return (
        inconclusive(dead_letter, probe)
        if probe.may_be_gone(dead_letter)
        else RecordOutcome(dead_letter.message_id, "pending")
    )


def inconclusive(dead_letter: ReplayRecord, probe: ProbeOutcome) -> RecordOutcome:
    text = _COMPACTED if dead_letter.message_id in probe.newer else _REMOVED.format(topic=dead_letter.topic)
    return RecordOutcome(dead_letter.message_id, "skipped", text, verdict="inconclusive")


def _landed(dead_letter: ReplayRecord, place: tuple[int, int]) -> RecordOutcome:
    partition, offset = place
    text = f"Found on {dead_letter.topic}, partition {partition}, at offset {offset}; its sender exited before reporting it."
    return RecordOutcome(dead_letter.message_id, "landed", text, partition, offset, verdict="found")

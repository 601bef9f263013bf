"""The outcome of a record in a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.record_batch import RecordBatch
from producer_core.events import Attempt, DeadLetter, Kind, Verdict

Ending = Literal["acknowledged", "landed", "failed", "skipped", "pending"]


class FailedReplay(NamedTuple):
    """The failure of a replayed dead letter; its earlier history stays in the store."""

    kind: Kind
    code: str
    error_text: str
    fingerprint: str
    verdict: Verdict
    verdict_reason: str
    failed_at: float
    attempts: tuple[Attempt, ...]

    @classmethod
    def again(cls, dead_letter: DeadLetter) -> FailedReplay:
        """Return the failure of a dead letter that a producer wrote."""
        return cls(*(getattr(dead_letter, name) for name in cls._fields))

    def of(self, dead_letter: DeadLetter) -> DeadLetter:
        """Return the dead letter with this failure as its latest."""
        return replace(dead_letter, **self._asdict() | {"attempts": (*dead_letter.attempts, *self.attempts)})


class RecordOutcome(NamedTuple):
    """The outcome of a claimed record. `pending` returns it unsent; `death` is its new failure."""

    message_id: str
    ending: Ending
    text: str | None = None
    partition: int | None = None
    offset: int | None = None
    verdict: Verdict | None = None
    death: FailedReplay | None = None


@dataclass(frozen=True, slots=True)
class OrphanedRecord:
    """A record that a dead owner left claimed; it may have been sent."""

    dead_letter: ReplayRecord
    claimed_at: float


@dataclass(frozen=True, slots=True)
class AcknowledgedBatch:
    """A batch of which every record was acknowledged, with the partition and the offset of each."""

    records: RecordBatch
    partitions: Sequence[int]
    offsets: Sequence[int]

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def joined(cls, batches: Sequence[AcknowledgedBatch]) -> AcknowledgedBatch:
        """Return one or more batches as one, in this order."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            RecordBatch.joined([batch.records for batch in batches]),
            [*chain.from_iterable(batch.partitions for batch in batches)],
            [*chain.from_iterable(batch.offsets for batch in batches)],
        )

    def outcomes(self) -> list[RecordOutcome]:
        """Return the outcome of each record."""
        return [
            RecordOutcome(record.message_id, "acknowledged", None, partition, offset)
            for record, partition, offset in zip(self.records, self.partitions, self.offsets, strict=True)
        ]

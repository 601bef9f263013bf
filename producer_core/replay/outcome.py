"""A dead letter in a replay's hand, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.events import Attempt, DeadLetter, Kind, Verdict

Ending = Literal["acknowledged", "landed", "failed", "skipped", "pending"]


class FailedReplay(NamedTuple):
    """How a dead letter died again; what it was before stays with it in the store."""

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
        """That of a dead letter which a producer wrote."""
        return cls(*(getattr(dead_letter, name) for name in cls._fields))

    def of(self, dead_letter: DeadLetter) -> DeadLetter:
        """The whole dead letter with this death as its last."""
        return replace(dead_letter, **self._asdict() | {"attempts": (*dead_letter.attempts, *self.attempts)})


class RecordOutcome(NamedTuple):
    """What became of a claimed record. `pending` gives it back unsent; `death` is its new one."""

    message_id: str
    ending: Ending
    text: str | None = None
    partition: int | None = None
    offset: int | None = None
    verdict: Verdict | None = None
    death: FailedReplay | None = None


@dataclass(frozen=True, slots=True)
class OrphanedRecord:
    """A record that a dead owner left claimed: perhaps sent, perhaps not."""

    dead_letter: ReplayRecord
    claimed_at: float

"""The open questions of loss detection: at most one per partition, with its checkpoint and due time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from producer_core.delivery.loss_detection.ack_checkpoints import PartitionId
from producer_core.delivery.loss_detection.evidence import BrokerView, Checkpoint, LossFinding, Trigger
from producer_core.delivery.loss_detection.leader_changes import LeaderChange

_FIRST_RETRY_S, _MAX_RETRY_S = 0.5, 60.0
"""Seconds until an unanswered question is asked again, doubling from the first to the second value."""


@dataclass(slots=True)
class LossSuspicion:
    """A suspicion from a code that means an unknown producer. It is closed when all its partitions have findings."""

    code: str
    subject: str
    open: int = 0
    findings: list[LossFinding] = field(default_factory=list)


@dataclass(slots=True)
class OpenQuestion:
    """A question about one partition."""

    key: PartitionId
    trigger: Trigger
    last: Checkpoint | None
    due: float
    topic_id: str | None = None
    message: int | None = None
    """The sequence of a message whose own outcome is ambiguous."""
    suspicion: LossSuspicion | None = None
    quiet: bool = False
    """It follows an answer closely: callers do not wait for it, and it emits a notice only for a loss."""
    attempts: int = 0
    seen_lost: bool = False
    reported: bool = False
    version: int = 0
    """Incremented when another trigger joins; an answer to an earlier version does not answer the question."""
    change: LeaderChange | None = None
    other_checkpoints: tuple[Checkpoint, ...] = ()
    """Further checkpoints to check once the record at `last` is found."""
    late_added: bool = False
    """Whether `other_checkpoints` has those acknowledged just before the leader change and reported just after it."""

    @property
    def urgent(self) -> bool:
        return self.suspicion is not None or self.trigger == "duplicate"

    @property
    def must_be_answered(self) -> bool:
        """Return whether the question stays open until it has an answer."""
        return self.urgent or self.change is not None or self.trigger == "not_rising"

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that are still to be checked."""
        return (() if self.last is None else (self.last,)) + self.other_checkpoints

    def add_checkpoints(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Add checkpoints to check."""
        by_offset = {
            checkpoint.offset: checkpoint
            for checkpoint in (*self.other_checkpoints, *checkpoints)
            if checkpoint != self.last
        }
        self.other_checkpoints = tuple(by_offset[offset] for offset in sorted(by_offset, reverse=True))

    def next_checkpoint(self, view: BrokerView, now: float) -> bool:
        """Continue with the next checkpoint not yet removed by retention. Return False when there is none."""
        remaining = tuple(
            checkpoint for checkpoint in self.other_checkpoints if checkpoint.offset >= (view.low or 0)
        )
        if not remaining:
            return False
        self.last, self.other_checkpoints = remaining[0], remaining[1:]
        self.due, self.seen_lost, self.attempts = now, False, 0
        return True

    def retry_later(self, now: float) -> None:
        """Postpone the question after a failed attempt."""
        self.due = now + min(_FIRST_RETRY_S * 2.0 ** min(self.attempts, 16), _MAX_RETRY_S)
        self.attempts += 1


class OpenQuestions:
    """Hold the open questions. Not thread-safe; the owner holds a lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[PartitionId, OpenQuestion] = {}
        self.skipped = 0

    def __contains__(self, key: object) -> bool:
        return key in self._open

    def __len__(self) -> int:
        return len(self._open)

    def add(self, question: OpenQuestion) -> None:
        """Add a question. A second trigger joins an open question of its partition: the checkpoints of both are checked."""
        existing = self._open.get(question.key)
        if existing is None:
            if len(self._open) >= self._limit and not question.must_be_answered:
                self.skipped += 1
                return
            self._open[question.key] = question
        else:
            existing.due = min(existing.due, question.due)
            existing.reported = False
            existing.quiet = existing.quiet and question.quiet
            existing.version += 1
            if question.urgent and not existing.urgent:
                existing.trigger, existing.message = question.trigger, question.message
            elif question.must_be_answered and not existing.must_be_answered:
                existing.trigger = question.trigger
            existing.last = existing.last or question.last
            existing.add_checkpoints(question.checkpoints)
            if question.change is not None:
                _join_change(existing, question.change)
            if existing.suspicion is None:
                existing.suspicion = question.suspicion
            elif question.suspicion is not None:
                return
        if question.suspicion is not None:
            question.suspicion.open += 1

    def has_checkpoint(self, key: PartitionId, checkpoint: Checkpoint) -> bool:
        """Return whether the open question of a partition, if there is one, checks this checkpoint."""
        existing = self._open.get(key)
        return existing is not None and checkpoint in existing.checkpoints

    def remove(self, question: OpenQuestion) -> None:
        self._open.pop(question.key, None)

    def drop_routine(self, topic: str) -> None:
        """Remove the questions about a topic for which no caller waits."""
        for key, question in list(self._open.items()):
            if key[0] == topic and not question.urgent:
                del self._open[key]

    def due(self, now: float, limit: int, *, urgent_only: bool = False) -> list[OpenQuestion]:
        """Return the questions due now, urgent ones first. `urgent_only` omits the routine ones, and a leader change or an
        offset that did not rise counts as due.
        """
        ready = [
            question
            for question in self._open.values()
            if (question.due <= now and (question.urgent or not urgent_only))
            or (urgent_only and question.must_be_answered and not question.urgent)
        ]
        ready.sort(key=lambda question: (not question.urgent, question.due))
        return ready[:limit]

    def next_due(self) -> float | None:
        return min((question.due for question in self._open.values()), default=None)

    def has_open(self, topic: str, partition: int) -> bool:
        """Return whether a question about this partition or the whole topic is open."""
        return any(
            found is not None and not found.quiet
            for found in (self._open.get((topic, partition)), self._open.get((topic, -1)))
        )

    def suspected(self, topic: str) -> bool:
        """Return whether a suspected loss on this topic has not been queried yet."""
        return any(
            question.suspicion is not None and not question.attempts and not question.quiet
            for (name, _), question in self._open.items()
            if name == topic
        )


def _join_change(existing: OpenQuestion, change: LeaderChange) -> None:
    """Add a leader change to an open question, which is asked again without delay."""
    existing.change = change if existing.change is None else change.since(existing.change)
    existing.late_added, existing.attempts = False, 0

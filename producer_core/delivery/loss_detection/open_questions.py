"""The open questions of a watch: at most one a partition, each with the mark it is about and when it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from producer_core.delivery.loss_detection.ack_checkpoints import Key
from producer_core.delivery.loss_detection.evidence import BrokerView, Checkpoint, LossFinding, Trigger
from producer_core.delivery.loss_detection.leader_change import LeaderChange

_FIRST, _LONGEST = 0.5, 60.0
"""Seconds until an unanswered question is asked again: doubling."""


@dataclass(slots=True)
class LossSuspicion:
    """A code said that the broker does not know us; answered when every partition it may mean has its finding."""

    code: str
    subject: str
    open: int = 0
    findings: list[LossFinding] = field(default_factory=list)


@dataclass(slots=True)
class OpenQuestion:
    """What is to be found out about one partition."""

    key: Key
    trigger: Trigger
    last: Checkpoint | None
    due: float
    topic_id: str | None = None
    message: int | None = None
    """The sequence of a message that is itself in doubt."""
    suspicion: LossSuspicion | None = None
    quiet: bool = False
    """It follows an answer so closely that nobody waits for it, nor hears of it unless something is wrong."""
    unanswered: int = 0
    seen_gone: bool = False
    told: bool = False
    version: int = 0
    """Grows when another reason to ask joins: a look that was made before does not answer that one."""
    change: LeaderChange | None = None
    more: tuple[Checkpoint, ...] = ()
    """Further marks to read back, once the record at `last` is there."""
    gathered: bool = False
    """`more` has what was acknowledged just before the leader changed and reported just after."""

    @property
    def urgent(self) -> bool:
        return self.suspicion is not None or self.trigger == "duplicate"

    @property
    def lasting(self) -> bool:
        """It stays open until it has an answer."""
        return self.urgent or self.change is not None

    def gather(self, marks: Iterable[Checkpoint]) -> None:
        """Read these back, too."""
        further = {mark.offset: mark for mark in (*self.more, *marks) if mark != self.last}
        self.more = tuple(further[offset] for offset in sorted(further, reverse=True))

    def next_mark(self, look: BrokerView, now: float) -> bool:
        """Go on with the next mark that retention has left; False where there is none."""
        there = tuple(mark for mark in self.more if mark.offset >= (look.low or 0))
        if not there:
            return False
        self.last, self.more = there[0], there[1:]
        self.due, self.seen_gone, self.unanswered = now, False, 0
        return True

    def again(self, now: float) -> None:
        """Nobody could answer: later."""
        self.due = now + min(_FIRST * 2.0 ** min(self.unanswered, 16), _LONGEST)
        self.unanswered += 1


class OpenQuestions:
    """Not locked: its owner is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Key, OpenQuestion] = {}
        self.skipped = 0

    def __contains__(self, key: object) -> bool:
        return key in self._open

    def __len__(self) -> int:
        return len(self._open)

    def add(self, question: OpenQuestion) -> None:
        """One a partition: a second reason to ask joins the first, whose mark is the older one."""
        known = self._open.get(question.key)
        if known is None:
            if len(self._open) >= self._limit and not question.lasting:
                self.skipped += 1
                return
            self._open[question.key] = question
        else:
            known.due = min(known.due, question.due)
            known.told = False
            known.quiet = known.quiet and question.quiet
            known.version += 1
            if question.urgent and not known.urgent:
                known.trigger, known.message = question.trigger, question.message
            if question.change is not None:
                _join_change(known, question)
            if known.suspicion is None:
                known.suspicion = question.suspicion
            elif question.suspicion is not None:
                return
        if question.suspicion is not None:
            question.suspicion.open += 1

    def remove(self, question: OpenQuestion) -> None:
        self._open.pop(question.key, None)

    def drop_routine(self, topic: str) -> None:
        """All about a topic that nobody waits for."""
        for key, question in list(self._open.items()):
            if key[0] == topic and not question.urgent:
                del self._open[key]

    def due(self, now: float, most: int, *, urgent_only: bool = False) -> list[OpenQuestion]:
        """What is to be asked now, the urgent first. With `urgent_only`, changes of a leader count as due."""
        ready = [
            question
            for question in self._open.values()
            if (question.due <= now and (question.urgent or not urgent_only))
            or (urgent_only and question.change is not None)
        ]
        ready.sort(key=lambda question: (not question.urgent, question.due))
        return ready[:most]

    def next_due(self) -> float | None:
        return min((question.due for question in self._open.values()), default=None)

    def about(self, topic: str, partition: int) -> bool:
        """Whether something is still to be found out about this partition, or about the topic as a whole."""
        return any(
            found is not None and not found.quiet
            for found in (self._open.get((topic, partition)), self._open.get((topic, -1)))
        )

    def suspected(self, topic: str) -> bool:
        """Whether a suspected loss on this topic was not asked about yet."""
        return any(
            question.suspicion is not None and not question.unanswered and not question.quiet
            for (name, _), question in self._open.items()
            if name == topic
        )


def _join_change(known: OpenQuestion, question: OpenQuestion) -> None:
    """The leader of a partition that is asked about already changed: its marks are read back, and at once."""
    assert question.change is not None
    known.change = question.change if known.change is None else question.change.since(known.change)
    known.gather((*(() if question.last is None else (question.last,)), *question.more))
    known.gathered, known.unanswered = False, 0

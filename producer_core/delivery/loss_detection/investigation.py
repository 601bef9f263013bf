"""The inquiry: what is suspected of which partition, what the answers prove, and whom to tell. No thread, no lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from producer_core.delivery.loss_detection.ack_checkpoints import Key, PartitionCheckpoints
from producer_core.delivery.loss_detection.evidence import (
    CODES,
    NEEDS_A_SECOND_LOOK,
    BrokerView,
    Case,
    Checkpoint,
    Evidence,
    LossFinding,
    Trigger,
    classify,
)
from producer_core.delivery.loss_detection.leader_change import LeaderChange
from producer_core.delivery.loss_detection.notices import notice_of, resolved, suspected, worst
from producer_core.delivery.loss_detection.open_questions import LossSuspicion, OpenQuestion, OpenQuestions
from producer_core.events import Notice
from producer_core.messages import MessageIds

SOON = 1.0
"""Seconds that a routine question waits for company."""
_PATIENCE = 5
"""Unanswered times after which it is said that nobody can say."""
_CLOSELY = 10.0
"""Seconds after an answer within which the same code on the same topic is taken for the same event's."""
_CHANGES_APART = 5.0
"""Seconds between two looks at a partition whose leader changes time and again."""
_KEPT = 1000
"""Findings that are kept."""
_THERE: tuple[Case, ...] = ("intact", "desynchronised")
"""The record that was asked about is there."""


class Investigation:
    """Its owner locks it. Each method that finds something out returns the notices to be told."""

    def __init__(
        self, *, ids: MessageIds, again: float, confirm: float, max_partitions: int, max_questions: int
    ) -> None:
        self._ids = ids
        self._again = again
        self._confirm = confirm
        self.marks = PartitionCheckpoints(max_partitions)
        self.questions = OpenQuestions(max_questions)
        self.ids: dict[str, str] = {}
        self.findings: deque[LossFinding] = deque(maxlen=_KEPT)
        self.lost: dict[Key, LossFinding] = {}
        self._latest: dict[Key, LossFinding] = {}
        self._checked: dict[Key, float] = {}
        self._suspicions: dict[tuple[str, str], LossSuspicion] = {}
        self._answered_at: dict[tuple[str, str], float] = {}
        self._refused: set[str] = set()  # topics of which it was said that we may not read them

    # asking

    def ask(
        self,
        key: Key,
        trigger: Trigger,
        last: Checkpoint | None,
        due: float,
        *,
        message: int | None = None,
        suspicion: LossSuspicion | None = None,
        quiet: bool = False,
    ) -> None:
        topic_id = self.ids.get(key[0])
        self.questions.add(OpenQuestion(key, trigger, last, due, topic_id, message, suspicion, quiet))

    def routine(self, key: Key, trigger: Trigger, last: Checkpoint, now: float) -> None:
        """A question without a code: soon, but not about the same partition time and again."""
        if key not in self.questions:
            self.ask(key, trigger, last, max(now + SOON, self._checked.get(key, 0.0) + self._again))

    def sweep(self, now: float) -> None:
        """The epoch rose: something went wrong that the client did not tell, so every partition is looked at."""
        for topic in self.marks.topics():
            for partition, mark in self.marks.of(topic).items():
                self.routine((topic, partition), "epoch_rose", mark, now)

    def leader_changed(self, key: Key, change: LeaderChange, now: float) -> None:
        """What was acknowledged before the change may be gone with the old leader: it is read back, soon."""
        marks = self.marks.around_a_change(key)
        if marks:
            again = min(self._checked.get(key, 0.0), now) + _CHANGES_APART
            question = OpenQuestion(
                key, "leader_changed", marks[0], max(now + SOON, again), self.ids.get(key[0])
            )
            question.change, question.more = change, tuple(marks[1:])
            self.questions.add(question)

    def gather(self, questions: Sequence[OpenQuestion]) -> None:
        """Just before they are asked: what was acknowledged before a leader changed may have been reported since."""
        for question in questions:
            if question.change is not None and not question.gathered:
                question.gathered = True
                question.gather(self.marks.before_pause(question.key))

    def suspect(self, code: str, topic: str, partition: int | None, text: str, now: float) -> list[Notice]:
        """A code came: every partition that it may mean is asked about; None: all of the topic.

        One broken client fails thousands of messages: what follows an answer closely is asked a little later,
        once, and not cried out before its own answer is there.
        """
        if (code, topic) in self._suspicions:
            return []
        suspicion = LossSuspicion(code, topic if partition is None else f"{topic}/{partition}")
        due = self._answered_at.get((code, topic), -_CLOSELY) + _CLOSELY
        quiet = due > now
        for number, mark in self._meant(topic, partition).items():
            self.ask((topic, number), CODES[code], mark, max(now, due), suspicion=suspicion, quiet=quiet)
        if suspicion.open == 0:  # all of them belong to another suspicion already
            return []
        self._suspicions[code, topic] = suspicion
        loud = CODES[code] == "out_of_order" and not quiet
        return [suspected(code, suspicion.subject, text, now)] if loud else []

    def _meant(self, topic: str, partition: int | None) -> Mapping[int, Checkpoint | None]:
        if partition is not None:
            return {partition: self.marks.get(topic, partition)}
        return self.marks.of(topic) or {-1: None}

    # looking

    def answered(self, key: Key) -> bool:
        found = self._latest.get(key)
        return not self.questions.about(*key) or (found is not None and found.case == "unknown")

    def latest(self, key: Key, now: float) -> LossFinding | None:
        """The newest finding; where nothing was acknowledged, that; None where nothing was ever asked."""
        found = self._latest.get(key) or self._latest.get((key[0], -1))
        if found is None and self.marks.get(*key) is None:
            return self._classify(OpenQuestion(key, "asked", None, now), BrokerView(), now)
        return found

    # answers

    def answer(self, question: OpenQuestion, look: BrokerView, now: float) -> list[Notice]:
        if question.key not in self.questions:  # its topic was found to be gone in the same round
            return []
        finding = self._classify(question, look, now)
        if finding.case == "unknown":
            return self._unanswered(question, finding, look, now)
        if finding.case in NEEDS_A_SECOND_LOOK and not question.seen_gone:
            question.seen_gone = True
            question.due = now + self._confirm
            return []
        if finding.case in _THERE and question.next_mark(look, now):
            return []
        self.questions.remove(question)
        self._refused.discard(finding.topic)
        self._check_noted(question.key, now)
        self._learn(question, look, finding)
        self._note(finding)
        return self._tell(question, finding, now)

    def _classify(self, question: OpenQuestion, look: BrokerView, now: float) -> LossFinding:
        evidence = Evidence(
            *question.key,
            question.trigger,
            question.last,
            look,
            session=self._session_of(question.last),
            topic_id=question.topic_id,
            forgotten=self.marks.forgotten,
            change=question.change,
        )
        return classify(evidence, at=now)

    def _session_of(self, mark: Checkpoint | None) -> bytes:
        """Return the session of the message that a mark is of."""
        return b"" if mark is None or mark.seq < 0 else self._ids.of(mark.seq)[:16]

    def _unanswered(
        self, question: OpenQuestion, finding: LossFinding, look: BrokerView, now: float
    ) -> list[Notice]:
        """Asked again, each time later; said once, after some tries or where a permission is missing."""
        question.again(now)
        if question.told or not (look.refused or question.unanswered > _PATIENCE):
            return []
        question.told = True
        self._note(finding)
        if question.urgent:
            return [notice_of(finding)]
        if question.change is not None and not look.refused:
            return []
        self.questions.remove(question)  # the next occasion will ask again
        self._check_noted(question.key, now)
        if not look.refused or finding.topic in self._refused:
            return []
        self._refused.add(finding.topic)
        return [notice_of(finding)]

    def _learn(self, question: OpenQuestion, look: BrokerView, finding: LossFinding) -> None:
        topic, partition = question.key
        if finding.case == "topic_recreated":
            self.marks.drop(topic)
            self.questions.drop_routine(topic)
            self.ids.pop(topic, None)
            if look.topic_id:
                self.ids[topic] = look.topic_id
        elif finding.case == "acknowledged_lost":
            self.lost[question.key] = finding
            if question.last is not None and question.trigger != "duplicate":
                self.marks.lost(topic, partition, question.last)

    def _check_noted(self, key: Key, now: float) -> None:
        """When a partition was looked at; what is so old that it does not matter is dropped."""
        if len(self._checked) >= 10 * _KEPT:
            self._checked = {each: at for each, at in self._checked.items() if now - at < self._again}
        self._checked[key] = now

    def _note(self, finding: LossFinding) -> None:
        self.findings.append(finding)
        key = (finding.topic, finding.partition)
        self._latest.pop(key, None)
        self._latest[key] = finding
        if len(self._latest) > _KEPT:
            del self._latest[next(iter(self._latest))]

    def _tell(self, question: OpenQuestion, finding: LossFinding, now: float) -> list[Notice]:
        suspicion = question.suspicion
        if suspicion is None:
            return [] if finding.case in ("intact", "nothing_to_lose") else [notice_of(finding)]
        suspicion.findings.append(finding)
        suspicion.open -= 1
        serious = [notice_of(finding)] if finding.case in NEEDS_A_SECOND_LOOK else []
        if suspicion.open:
            return serious
        self._suspicion_answered(suspicion, now)
        if question.quiet and not serious:
            return []
        if serious and worst(suspicion.findings).case == finding.case:
            return [resolved(suspicion, now, serious[0])]
        return [*serious, resolved(suspicion, now)]

    def _suspicion_answered(self, suspicion: LossSuspicion, now: float) -> None:
        answered = [key for key, item in self._suspicions.items() if item is suspicion]
        for key in answered:
            del self._suspicions[key]
        self._answered_at = {key: at for key, at in self._answered_at.items() if now - at < _CLOSELY}
        self._answered_at |= dict.fromkeys(answered, now)

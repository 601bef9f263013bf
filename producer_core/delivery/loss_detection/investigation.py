"""Investigate suspected loss: open questions per partition, their answers, and the resulting notices. Uses no thread or lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from producer_core.delivery.loss_detection.ack_checkpoints import PartitionCheckpoints, PartitionId
from producer_core.delivery.loss_detection.evidence import (
    CODES,
    NEEDS_CONFIRMATION,
    BrokerView,
    Case,
    Checkpoint,
    Evidence,
    LossFinding,
    Trigger,
    classify,
)
from producer_core.delivery.loss_detection.leader_changes import LeaderChange
from producer_core.delivery.loss_detection.notices import (
    finding_notice,
    loss_suspected_notice,
    suspicion_resolved_notice,
    worst,
)
from producer_core.delivery.loss_detection.open_questions import LossSuspicion, OpenQuestion, OpenQuestions
from producer_core.events import Notice
from producer_core.messages import MessageIds

BATCH_DELAY_S = 1.0
"""Seconds that a routine question waits, so that several are asked together."""
_REPORT_AFTER_ATTEMPTS = 5
"""Failed attempts after which `unknown` is reported."""
_SAME_EVENT_S = 10.0
"""Seconds after an answer within which the same code on the same topic counts as the same event."""
_LOSS_CHECK_INTERVAL_S = 5.0
"""Seconds between two checks of a partition whose leader changes, or whose offsets fall, repeatedly."""
_MAX_FINDINGS = 1000
"""The number of findings kept."""
_CHECKPOINT_DONE: tuple[Case, ...] = ("intact", "desynchronised", "retention_removed")
"""Cases in which the record in question is in the log, or older than the log. A later one may be lost nevertheless."""


class Investigation:
    """Track questions and findings. The owner holds a lock. Methods with new findings return the notices to emit."""

    def __init__(
        self,
        *,
        ids: MessageIds,
        check_interval: float,
        confirm_delay: float,
        max_partitions: int,
        max_questions: int,
    ) -> None:
        self._ids = ids
        self._check_interval = check_interval
        self._confirm_delay = confirm_delay
        self.checkpoints = PartitionCheckpoints(max_partitions)
        self.questions = OpenQuestions(max_questions)
        self.ids: dict[str, str] = {}
        self.findings: deque[LossFinding] = deque(maxlen=_MAX_FINDINGS)
        self.lost: dict[PartitionId, LossFinding] = {}
        self._latest: dict[PartitionId, LossFinding] = {}
        self._checked: dict[PartitionId, float] = {}
        self._suspicions: dict[tuple[str, str], LossSuspicion] = {}
        self._answered_at: dict[tuple[str, str], float] = {}
        self._denied: set[str] = set()  # topics whose missing read permission was reported

    # questions

    def add_question(
        self,
        key: PartitionId,
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

    def add_routine_check(self, key: PartitionId, trigger: Trigger, last: Checkpoint, now: float) -> None:
        """Add a question without a sign of loss, with a minimum interval between two checks of a partition."""
        if key not in self.questions:
            self.add_question(key, trigger, last, self._due(key, now, self._check_interval))

    def check_all(self, now: float) -> None:
        """Check every partition: the epoch rose, so the client encountered an error that it did not report."""
        for topic in self.checkpoints.topics():
            for partition, checkpoint in self.checkpoints.of(topic).items():
                self.add_routine_check((topic, partition), "epoch_rose", checkpoint, now)

    def offsets_fell(self, key: PartitionId, last: Checkpoint, now: float) -> None:
        """Check soon after a broker acknowledged an offset at or below an earlier one: its log was truncated between them."""
        if not self.questions.has_checkpoint(key, last):  # each batch until the log has regained its length
            self.add_question(key, "not_rising", last, self._due(key, now, _LOSS_CHECK_INTERVAL_S))

    def leader_changed(self, key: PartitionId, change: LeaderChange, now: float) -> None:
        """Check soon after a leader change: records acknowledged before it may be lost with the old leader."""
        checkpoints = self.checkpoints.after_leader_change(key)
        if checkpoints:
            due = self._due(key, now, _LOSS_CHECK_INTERVAL_S)
            question = OpenQuestion(key, "leader_changed", checkpoints[0], due, self.ids.get(key[0]))
            question.change, question.other_checkpoints = change, tuple(checkpoints[1:])
            self.questions.add(question)

    def _due(self, key: PartitionId, now: float, interval: float) -> float:
        """Return when to check a partition: soon, but not within `interval` seconds of its last check."""
        return max(now + BATCH_DELAY_S, min(self._checked.get(key, 0.0), now) + interval)

    def add_late_checkpoints(self, questions: Sequence[OpenQuestion]) -> None:
        """Add checkpoints acknowledged before a leader change and reported since. Called right before the query."""
        for question in questions:
            if question.change is not None and not question.late_added:
                question.late_added = True
                question.add_checkpoints(self.checkpoints.before_pause(question.key))

    def suspect(self, code: str, topic: str, partition: int | None, text: str, now: float) -> list[Notice]:
        """Add questions for every partition that an error code may concern. None means all partitions of the topic.

        One broken client fails thousands of messages. A code that arrives shortly after an answer is therefore checked
        once, a little later, and no loss is reported before that check.
        """
        if (code, topic) in self._suspicions:
            return []
        suspicion = LossSuspicion(code, topic if partition is None else f"{topic}/{partition}")
        due = self._answered_at.get((code, topic), -_SAME_EVENT_S) + _SAME_EVENT_S
        quiet = due > now
        for number, checkpoint in self._affected(topic, partition).items():
            self.add_question(
                (topic, number), CODES[code], checkpoint, max(now, due), suspicion=suspicion, quiet=quiet
            )
        if suspicion.open == 0:  # all partitions already belong to another suspicion
            return []
        self._suspicions[code, topic] = suspicion
        notify = CODES[code] == "out_of_order" and not quiet
        return [loss_suspected_notice(code, suspicion.subject, text, now)] if notify else []

    def _affected(self, topic: str, partition: int | None) -> Mapping[int, Checkpoint | None]:
        if partition is not None:
            return {partition: self.checkpoints.get(topic, partition)}
        return self.checkpoints.of(topic) or {-1: None}

    # findings

    def is_answered(self, key: PartitionId) -> bool:
        finding = self._latest.get(key)
        return not self.questions.has_open(*key) or (finding is not None and finding.case == "unknown")

    def latest_finding(self, key: PartitionId, now: float) -> LossFinding | None:
        """Return the newest finding, `nothing_to_lose` if nothing was acknowledged, or None if never checked."""
        finding = self._latest.get(key) or self._latest.get((key[0], -1))
        if finding is None and self.checkpoints.get(*key) is None:
            return self._classify(OpenQuestion(key, "asked", None, now), BrokerView(), now)
        return finding

    # answers

    def on_answer(self, question: OpenQuestion, view: BrokerView, now: float) -> list[Notice]:
        if question.key not in self.questions:  # removed in the same round, because its topic was recreated
            return []
        finding = self._classify(question, view, now)
        if finding.case == "unknown":
            return self._on_no_answer(question, finding, view, now)
        if finding.case in NEEDS_CONFIRMATION and not question.seen_lost:
            question.seen_lost = True
            question.due = now + self._confirm_delay
            return []
        if finding.case in _CHECKPOINT_DONE and question.next_checkpoint(view, now):
            return []
        self.questions.remove(question)
        self._denied.discard(finding.topic)
        self._record_check(question.key, now)
        self._apply(question, view, finding)
        self._record_finding(finding)
        return self._notices(question, finding, now)

    def _classify(self, question: OpenQuestion, view: BrokerView, now: float) -> LossFinding:
        evidence = Evidence(
            *question.key,
            question.trigger,
            question.last,
            view,
            session=self._session_of(question.last),
            topic_id=question.topic_id,
            evicted=self.checkpoints.evicted,
            change=question.change,
        )
        return classify(evidence, at=now)

    def _session_of(self, checkpoint: Checkpoint | None) -> bytes:
        """Return the session of the checkpoint's message."""
        return b"" if checkpoint is None or checkpoint.seq < 0 else self._ids.of(checkpoint.seq)[:16]

    def _on_no_answer(
        self, question: OpenQuestion, finding: LossFinding, view: BrokerView, now: float
    ) -> list[Notice]:
        """Retry with increasing delays. Report once, after several attempts or when a permission is missing."""
        question.retry_later(now)
        if question.reported or not (view.denied or question.attempts > _REPORT_AFTER_ATTEMPTS):
            return []
        question.reported = True
        self._record_finding(finding)
        if question.urgent or question.trigger == "not_rising":
            return [finding_notice(finding)]
        if question.must_be_answered and not view.denied:
            return []
        self.questions.remove(question)  # the next trigger asks again
        self._record_check(question.key, now)
        if not view.denied or finding.topic in self._denied:
            return []
        self._denied.add(finding.topic)
        return [finding_notice(finding)]

    def _apply(self, question: OpenQuestion, view: BrokerView, finding: LossFinding) -> None:
        topic, partition = question.key
        if finding.case == "topic_recreated":
            self.checkpoints.drop(topic)
            self.questions.drop_routine(topic)
            self.ids.pop(topic, None)
            if view.topic_id:
                self.ids[topic] = view.topic_id
        elif finding.case == "acknowledged_lost":
            self.lost[question.key] = finding
            if question.last is not None and question.trigger != "duplicate":
                self.checkpoints.mark_lost(topic, partition, question.last)

    def _record_check(self, key: PartitionId, now: float) -> None:
        """Record the time of a check, and drop entries too old to matter."""
        if len(self._checked) >= 10 * _MAX_FINDINGS:
            self._checked = {
                each: at for each, at in self._checked.items() if now - at < self._check_interval
            }
        self._checked[key] = now

    def _record_finding(self, finding: LossFinding) -> None:
        self.findings.append(finding)
        key = (finding.topic, finding.partition)
        self._latest.pop(key, None)
        self._latest[key] = finding
        if len(self._latest) > _MAX_FINDINGS:
            del self._latest[next(iter(self._latest))]

    def _notices(self, question: OpenQuestion, finding: LossFinding, now: float) -> list[Notice]:
        suspicion = question.suspicion
        if suspicion is None:
            return [] if finding.case in ("intact", "nothing_to_lose") else [finding_notice(finding)]
        suspicion.findings.append(finding)
        suspicion.open -= 1
        serious = [finding_notice(finding)] if finding.case in NEEDS_CONFIRMATION else []
        if suspicion.open:
            return serious
        self._close_suspicion(suspicion, now)
        if question.quiet and not serious:
            return []
        if serious and worst(suspicion.findings).case == finding.case:
            return [suspicion_resolved_notice(suspicion, now, serious[0])]
        return [*serious, suspicion_resolved_notice(suspicion, now)]

    def _close_suspicion(self, suspicion: LossSuspicion, now: float) -> None:
        closed = [key for key, item in self._suspicions.items() if item is suspicion]
        for key in closed:
            del self._suspicions[key]
        self._answered_at = {key: at for key, at in self._answered_at.items() if now - at < _SAME_EVENT_S}
        self._answered_at |= dict.fromkeys(closed, now)

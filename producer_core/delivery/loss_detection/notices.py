"""Create the notices of loss detection: suspicions, findings, decisions and epoch rises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from producer_core.delivery.loss_detection.evidence import Case, LossFinding
from producer_core.delivery.loss_detection.open_questions import LossSuspicion
from producer_core.events import Notice

_SEVERITY_ORDER: tuple[Case, ...] = (
    "acknowledged_lost",
    "topic_recreated",
    "desynchronised",
    "duplicate_confirmed",
    "retention_removed",
    "intact",
    "nothing_to_lose",
)
_QUIET_PERIOD_S = 60.0
"""Seconds within which further epoch rises are combined into one notice."""


def worst(findings: Sequence[LossFinding]) -> LossFinding:
    return min(findings, key=lambda finding: _SEVERITY_ORDER.index(finding.case))


def loss_suspected_notice(code: str, subject: str, text: str, at: float) -> Notice:
    """Return the notice of a suspected loss, emitted before the evidence is read."""
    message = f"Acknowledged records of {subject} may be lost: the broker returned {code}. The log is being checked. ({text})"
    return Notice("loss_suspected", "critical", message, at, {"subject": subject, "code": code})


def finding_notice(finding: LossFinding) -> Notice:
    subject = finding.topic
    if finding.partition >= 0 and finding.case != "topic_recreated":
        subject = f"{finding.topic}/{finding.partition}"
    details = {
        "subject": subject,
        "topic": finding.topic,
        "partition": finding.partition,
        "case": finding.case,
        "trigger": finding.trigger,
        "advice": finding.advice,
        **finding.numbers,
    }
    return Notice(finding.kind, finding.severity, finding.text, finding.at, details)


def suspicion_resolved_notice(suspicion: LossSuspicion, at: float, last: Notice | None = None) -> Notice:
    """Return the notice that closes a suspicion: the last loss found, or a summary when there was none."""
    ends = {"ends": [("loss_suspected", suspicion.subject)], "code": suspicion.code}
    if last is not None:
        return replace(last, details={**last.details, **ends})
    finding = worst(suspicion.findings)
    notice = finding_notice(finding)
    if len(suspicion.findings) > 1:
        notice = replace(notice, text=_summary(suspicion, finding))
        ends["subject"] = suspicion.subject
    return replace(notice, at=at, details={**notice.details, **ends})


def loss_decided_notice(topic: str, partitions: Sequence[tuple[str, int]], at: float) -> Notice:
    """Return the notice that an operator resumed a topic. It closes the alerts of its losses."""
    text = f"An operator resumed {topic}: its ambiguous messages are sent again from now on."
    ends = [("acknowledged_lost", f"{topic}/{number}") for _, number in partitions]
    return Notice("loss_decided", "info", text, at, {"subject": topic, "ends": ends})


def _summary(suspicion: LossSuspicion, finding: LossFinding) -> str:
    counts = Counter(item.case for item in suspicion.findings)
    lost = counts["acknowledged_lost"]
    counts_text = ", ".join(f"{case.replace('_', ' ')}: {count}" for case, count in counts.items())
    verdict = f"records lost on {lost} of them" if lost else "no acknowledged record is missing"
    return (
        f"{suspicion.code} on {suspicion.subject}: {len(suspicion.findings)} partitions checked, {verdict} "
        f"({counts_text}). {finding.text}"
    )


class EpochWatch:
    """Watch the idempotent client's epoch. It rises when the client encounters an error that it does not report."""

    def __init__(self) -> None:
        self._producer_id: int | None = None
        self._epoch: int | None = None
        self._reported_epoch: int | None = None  # the epoch at the last notice
        self._quiet_until = 0.0
        self._failures: Counter[str] = Counter()

    def failed(self, code: str, topic: str) -> None:
        """Record a failed message, because it explains an epoch rise."""
        if len(self._failures) < 20 or f"{code} on {topic}" in self._failures:
            self._failures[f"{code} on {topic}"] += 1

    def statistics(self, eos: Mapping[str, Any], now: float) -> Notice | None:
        """Return a notice when the epoch rose. Further rises within a minute are combined."""
        producer_id, epoch = eos.get("producer_id", -1), eos.get("producer_epoch", -1)
        if producer_id < 0 or epoch < 0:
            return None
        if producer_id != self._producer_id:  # a new client, or the first id
            self._producer_id, self._reported_epoch = producer_id, epoch
        self._epoch = epoch
        if self._reported_epoch is None or epoch <= self._reported_epoch or now < self._quiet_until:
            return None
        self._quiet_until = now + _QUIET_PERIOD_S
        old, self._reported_epoch = self._reported_epoch, epoch
        failures, self._failures = self._failures, Counter()
        return _epoch_rose_notice(old, epoch, producer_id, failures, now)


def _epoch_rose_notice(old: int, new: int, producer_id: int, failures: Counter[str], at: float) -> Notice:
    if failures:
        cause = f"after {', '.join(name for name, _ in failures.most_common(3))}"
    else:
        cause = "without a failed message: the client did not report the error"
    text = (
        f"The producer epoch was bumped from {old} to {new}, {cause}. Unacknowledged messages of other partitions "
        "are sent under new sequence numbers, so the broker cannot detect duplicates. All partitions are checked."
    )
    details = {"old": old, "new": new, "producer_id": producer_id, "failures": dict(failures)}
    return Notice("epoch_rose", "info", text, at, details)

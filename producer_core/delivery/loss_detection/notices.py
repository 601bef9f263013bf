"""The notices of a watch: what is suspected, what was found, and that the epoch rose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from producer_core.delivery.loss_detection.evidence import Case, LossFinding
from producer_core.delivery.loss_detection.open_questions import LossSuspicion
from producer_core.events import Notice

_WORST: tuple[Case, ...] = (
    "acknowledged_lost",
    "topic_recreated",
    "desynchronised",
    "duplicate_confirmed",
    "retention_removed",
    "intact",
    "nothing_to_lose",
)
_QUIET = 60.0
"""Seconds within which further rises of the epoch are gathered into one notice."""


def worst(findings: Sequence[LossFinding]) -> LossFinding:
    return min(findings, key=lambda finding: _WORST.index(finding.case))


def suspected(code: str, subject: str, text: str, at: float) -> Notice:
    """Said at once: until the evidence is read, it counts as loss."""
    words = (
        f"Acknowledged records of {subject} may be lost: the broker answered {code}. The evidence is being read. "
        f"({text})"
    )
    return Notice("loss_suspected", "critical", words, at, {"subject": subject, "code": code})


def notice_of(finding: LossFinding) -> Notice:
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


def resolved(suspicion: LossSuspicion, at: float, last: Notice | None = None) -> Notice:
    """The notice that ends a suspicion: the last loss found, or one for all partitions where there was none."""
    ends = {"ends": [("loss_suspected", suspicion.subject)], "code": suspicion.code}
    if last is not None:
        return replace(last, details={**last.details, **ends})
    finding = worst(suspicion.findings)
    told = notice_of(finding)
    if len(suspicion.findings) > 1:
        told = replace(told, text=_summary(suspicion, finding))
        ends["subject"] = suspicion.subject
    return replace(told, at=at, details={**told.details, **ends})


def decided(topic: str, partitions: Sequence[tuple[str, int]], at: float) -> Notice:
    """Somebody knows of the losses, and the topic goes on: their alerts end."""
    words = f"Somebody decided that {topic} goes on: messages in doubt there are sent again from now on."
    ends = [("acknowledged_lost", f"{topic}/{number}") for _, number in partitions]
    return Notice("loss_decided", "info", words, at, {"subject": topic, "ends": ends})


def _summary(suspicion: LossSuspicion, finding: LossFinding) -> str:
    counts = Counter(item.case for item in suspicion.findings)
    lost = counts["acknowledged_lost"]
    parts = ", ".join(f"{case.replace('_', ' ')}: {count}" for case, count in counts.items())
    verdict = f"{lost} lost records" if lost else "nothing acknowledged is missing"
    return (
        f"{suspicion.code} on {suspicion.subject}: {len(suspicion.findings)} partitions were looked at, {verdict} "
        f"({parts}). {finding.text}"
    )


class EpochWatch:
    """The idempotent client's epoch, which rises when it met an error that it does not tell. Not locked."""

    def __init__(self) -> None:
        self._producer_id: int | None = None
        self._epoch: int | None = None
        self._told: int | None = None  # the epoch that the last notice ended with
        self._quiet_until = 0.0
        self._failures: Counter[str] = Counter()

    def failed(self, code: str, topic: str) -> None:
        """A message came back with an error: that explains a rise."""
        if len(self._failures) < 20 or f"{code} on {topic}" in self._failures:
            self._failures[f"{code} on {topic}"] += 1

    def statistics(self, eos: Mapping[str, Any], now: float) -> Notice | None:
        """A notice when the epoch rose; further rises within a minute are told together."""
        producer_id, epoch = eos.get("producer_id", -1), eos.get("producer_epoch", -1)
        if producer_id < 0 or epoch < 0:
            return None
        if producer_id != self._producer_id:  # another client, or its first id
            self._producer_id, self._told = producer_id, epoch
        self._epoch = epoch
        if self._told is None or epoch <= self._told or now < self._quiet_until:
            return None
        self._quiet_until = now + _QUIET
        old, self._told = self._told, epoch
        failures, self._failures = self._failures, Counter()
        return _rose(old, epoch, producer_id, failures, now)


def _rose(old: int, new: int, producer_id: int, failures: Counter[str], at: float) -> Notice:
    if failures:
        why = f"after {', '.join(name for name, _ in failures.most_common(3))}"
    else:
        why = "and no message failed: the client met an error that it does not tell"
    text = (
        f"The idempotent client's epoch rose from {old} to {new}, {why}. What had no answer on other partitions is "
        "sent under new numbers, so the broker cannot tell it from a new message; every partition is looked at."
    )
    details = {"old": old, "new": new, "producer_id": producer_id, "failures": dict(failures)}
    return Notice("epoch_rose", "info", text, at, details)

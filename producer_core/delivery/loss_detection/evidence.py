"""Classify the evidence for one partition: the acknowledged records, and the state of the broker's log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from producer_core._internal.plural import plural
from producer_core.delivery.loss_detection.leader_changes import LeaderChange
from producer_core.events import Severity
from producer_core.kafka.record_lookup import ProbeResult

Case = Literal[
    "intact",
    "nothing_to_lose",
    "retention_removed",
    "desynchronised",
    "duplicate_confirmed",
    "topic_recreated",
    "acknowledged_lost",
    "unknown",
]
Trigger = Literal[
    "out_of_order",
    "unknown_producer",
    "duplicate",
    "epoch_rose",
    "idle",
    "not_rising",
    "leader_changed",
    "asked",
]

CODES: Mapping[str, Trigger] = MappingProxyType(
    {"OUT_OF_ORDER_SEQUENCE_NUMBER": "out_of_order", "UNKNOWN_PRODUCER_ID": "unknown_producer"}
)
"""Error codes with which a broker reports that it does not know this producer."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An acknowledged record: its offset, its sequence and its time. A negative sequence matches any record with an id."""

    offset: int
    seq: int
    at: float


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The broker's view of one partition. None means not queried or not answered.

    `found_at` is the offset of the first record at or after the queried one, `found_id` its message id. `problem` is
    the reason why the view is incomplete.
    """

    exists: bool | None = None
    topic_id: str | None = None
    low: int | None = None
    high: int | None = None
    found_at: int | None = None
    found_id: bytes | None = None
    compacted: bool | None = None
    probe: ProbeResult | None = None
    problem: str = ""
    denied: bool = False
    """A permission is missing, so querying again soon does not help."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The trigger of a check, the last checkpoint, and the broker's view."""

    topic: str
    partition: int
    trigger: Trigger
    last: Checkpoint | None
    view: BrokerView
    session: bytes = b""
    topic_id: str | None = None
    evicted: bool = False
    """Checkpoints were evicted, so a missing checkpoint does not mean that no record was acknowledged."""
    change: LeaderChange | None = None

    @property
    def label(self) -> str:
        return self.topic if self.partition < 0 else f"{self.topic} [{self.partition}]"


@dataclass(frozen=True, slots=True)
class LossFinding:
    """The result of a check: `text` describes what happened, with numbers, and `advice` what to do now."""

    topic: str
    partition: int
    case: Case
    trigger: Trigger
    text: str
    advice: str
    at: float = 0.0
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        return _SEVERITY.get(self.case, "info")

    @property
    def kind(self) -> str:
        """Return the kind of its notice."""
        return _KIND.get(self.case, self.case)


_SEVERITY: Mapping[Case, Severity] = {
    "acknowledged_lost": "critical",
    "desynchronised": "warning",
    "topic_recreated": "warning",
    "unknown": "warning",
}
_KIND: Mapping[Case, str] = {"desynchronised": "producer_desynchronised", "unknown": "standing_unknown"}


def classify(evidence: Evidence, *, at: float = 0.0) -> LossFinding:
    """Return the case that the evidence proves, or `unknown`. A pure function: no clock, no broker."""
    case, text = _decide(evidence)
    if case == "acknowledged_lost" and evidence.change is not None:
        text = f"{text} {evidence.change}."
    return LossFinding(
        evidence.topic,
        evidence.partition,
        case,
        evidence.trigger,
        text,
        _ADVICE[case],
        at,
        _numbers(evidence),
    )


def _decide(evidence: Evidence) -> tuple[Case, str]:
    """Check the topic, the ambiguous message, the checkpoint and the log in turn. The first decision wins."""
    for step in (
        _check_topic,
        _check_duplicate,
        _check_nothing_acknowledged,
        _check_log_bounds,
        _check_record,
    ):
        if (decided := step(evidence)) is not None:
            return decided
    return _unknown(evidence, evidence.view.problem or "the record could not be read")


def _check_topic(evidence: Evidence) -> tuple[Case, str] | None:
    view, last = evidence.view, evidence.last
    if last is None:
        return None
    lost = f"its acknowledged records up to offset {last.offset:,} were deleted with it"
    if view.exists is False:
        return "topic_recreated", f"The topic {evidence.topic} no longer exists: {lost}."
    if evidence.topic_id and view.topic_id:
        if evidence.topic_id == view.topic_id:
            return None
        ids = f"its id was {evidence.topic_id} and is now {view.topic_id}"
    elif view.low == view.high == 0:  # without topic ids, a log truncated to nothing looks the same
        ids = f"{evidence.label} is empty and starts at offset 0"
    else:
        return None
    return "topic_recreated", f"The topic {evidence.topic} was deleted and recreated ({ids}): {lost}."


def _check_duplicate(evidence: Evidence) -> tuple[Case, str] | None:
    """Check a success without an offset by looking up the message itself instead of the checkpoint."""
    if evidence.trigger != "duplicate":
        return None
    probe = evidence.view.probe
    if probe is None or probe.outcome == "inconclusive":
        return _unknown(evidence, probe.text if probe else evidence.view.problem or "no broker responded")
    if probe.outcome == "found":
        text = f"The broker already had this message of {evidence.label} when it arrived again: {probe.text}"
        return "duplicate_confirmed", text
    text = (
        f"The broker acknowledged a message of {evidence.label} as a duplicate, but the log does not have it. "
        f"{probe.text}"
    )
    return "acknowledged_lost", text


def _check_nothing_acknowledged(evidence: Evidence) -> tuple[Case, str] | None:
    if evidence.last is not None:
        return None
    if evidence.evicted:
        return _unknown(evidence, "the limit of remembered partitions was exceeded")
    return (
        "nothing_to_lose",
        f"No record of {evidence.label} has been acknowledged yet, so none can be missing.",
    )


def _check_log_bounds(evidence: Evidence) -> tuple[Case, str] | None:
    """Compare the last acknowledged offset with both ends of the log."""
    view, last = evidence.view, evidence.last
    if last is None or view.low is None or view.high is None:
        return None
    if view.low > last.offset:
        text = (
            f"Retention removed all records that this producer wrote to {evidence.label}: the log now starts at offset "
            f"{view.low:,}, and the last acknowledged offset is {last.offset:,}."
        )
        return "retention_removed", text
    if last.offset >= view.high:
        text = (
            f"Acknowledged records of {evidence.label} are lost: offset {last.offset:,} was acknowledged "
            f"{_when(last)}, but the log ends before offset {view.high:,}. At least "
            f"{plural(last.offset - view.high + 1, 'is', 'are')} missing."
        )
        return "acknowledged_lost", text
    return None


def _check_record(evidence: Evidence) -> tuple[Case, str] | None:
    """Check the record at the last acknowledged offset: own, another producer's, or missing."""
    view, last = evidence.view, evidence.last
    if last is None or view.found_at is None:
        return None
    if view.found_at == last.offset:
        return _present(evidence, last) if _is_own(evidence, last) else _overwritten(evidence, last)
    if view.compacted:
        text = f"Compaction removed offset {last.offset:,} of {evidence.label}; the log around it is intact."
        return "intact", text
    if view.compacted is None:
        return _unknown(
            evidence,
            f"there is no record at offset {last.offset:,}, and it is unknown whether the topic is compacted "
            "(grant DESCRIBE_CONFIGS on it)",
        )
    text = (
        f"The record at offset {last.offset:,} of {evidence.label}, acknowledged {_when(last)}, is lost: "
        f"the next record is at {view.found_at:,}, and the topic is not compacted."
    )
    return "acknowledged_lost", text


def _is_own(evidence: Evidence, last: Checkpoint) -> bool:
    found = evidence.view.found_id
    if found is None or len(found) != 24:
        return False
    return last.seq < 0 or found == evidence.session + last.seq.to_bytes(8, "big")


def _present(evidence: Evidence, last: Checkpoint) -> tuple[Case, str]:
    span = (
        f"offset {last.offset:,} has this producer's record, and the log goes from {evidence.view.low:,} to "
        f"{evidence.view.high:,}"
    )
    if evidence.trigger in CODES.values():
        text = (
            f"The client and the broker lost synchronization on {evidence.label}, but no acknowledged record is "
            f"missing: {span}."
        )
        return "desynchronised", text
    return "intact", f"No acknowledged record of {evidence.label} is missing: {span}."


def _overwritten(evidence: Evidence, last: Checkpoint) -> tuple[Case, str]:
    text = (
        f"Acknowledged records of {evidence.label} are lost: offset {last.offset:,}, acknowledged {_when(last)}, now "
        f"has another record. The log was truncated and overwritten."
    )
    return "acknowledged_lost", text


def _unknown(evidence: Evidence, reason: str) -> tuple[Case, str]:
    reason = reason.rstrip(".")
    return (
        "unknown",
        f"It is unknown whether {evidence.label} still has its acknowledged records: {reason}.",
    )


def _numbers(evidence: Evidence) -> dict[str, Any]:
    last, view = evidence.last, evidence.view
    numbers = {
        "last_acknowledged": last.offset if last else None,
        "acknowledged_at": last.at if last else None,
        "low_watermark": view.low,
        "high_watermark": view.high,
        "record_at": view.found_at,
    }
    return {name: value for name, value in numbers.items() if value is not None}


def _when(checkpoint: Checkpoint) -> str:
    if not checkpoint.at:
        return "in an earlier run"
    return time.strftime("at %Y-%m-%d %H:%M:%S UTC", time.gmtime(checkpoint.at))


NEEDS_CONFIRMATION: tuple[Case, ...] = ("acknowledged_lost", "topic_recreated")
"""Right after a leader change, a broker may show less than it has. These cases are reported after two checks."""

_ADVICE: Mapping[Case, str] = {
    "intact": "Nothing to do.",
    "nothing_to_lose": "Nothing to do.",
    "retention_removed": "Nothing to do. Raise the topic's retention if its consumers had not read that far.",
    "desynchronised": "No record is lost, and the client continues without a restart. If this recurs, check the "
    "broker's log for restarts, and its producer.id.expiration.ms.",
    "duplicate_confirmed": "Nothing to do: the message is on the topic once.",
    "topic_recreated": "If the deletion was not intended, find its cause. Send the topic's records again.",
    "acknowledged_lost": "Look for an unclean leader election, a lost disk or a restored backup. Send the missing "
    "records again from their source. Until producer.go_on(topic), ambiguous messages of the topic become dead letters "
    "and are not sent again.",
    "unknown": "Grant READ and DESCRIBE on the topic, or check the connection. The check is repeated.",
}

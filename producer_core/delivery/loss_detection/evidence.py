"""The evidence of one partition: what we know was acknowledged, what the broker shows, and what follows from it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from producer_core.delivery.loss_detection.leader_change import LeaderChange
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
"""The codes with which a broker says that it does not know us."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An acknowledged record: its offset, its sequence (negative: any record with an id is ours), and when."""

    offset: int
    seq: int
    at: float


@dataclass(frozen=True, slots=True)
class BrokerView:
    """What the broker showed of one partition. None: it was not asked, or did not say.

    `found_at` is the offset of the first record at or after the one we asked for, `found_id` its message id.
    `trouble` says why the look is not complete.
    """

    exists: bool | None = None
    topic_id: str | None = None
    low: int | None = None
    high: int | None = None
    found_at: int | None = None
    found_id: bytes | None = None
    compacted: bool | None = None
    landing: ProbeResult | None = None
    trouble: str = ""
    refused: bool = False
    """The trouble is a missing permission: asking again soon does not help."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why we asked, what we had, and what the broker showed."""

    topic: str
    partition: int
    trigger: Trigger
    last: Checkpoint | None
    look: BrokerView
    session: bytes = b""
    topic_id: str | None = None
    forgotten: bool = False
    """More partitions were written than are remembered, so «no mark» does not mean «nothing acknowledged»."""
    change: LeaderChange | None = None

    @property
    def where(self) -> str:
        return self.topic if self.partition < 0 else f"{self.topic} [{self.partition}]"


@dataclass(frozen=True, slots=True)
class LossFinding:
    """What the evidence says, in words: `text` what happened with its numbers, `advice` what to do now."""

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
        """The word of its notice."""
        return _KIND.get(self.case, self.case)


_SEVERITY: Mapping[Case, Severity] = {
    "acknowledged_lost": "critical",
    "desynchronised": "warning",
    "topic_recreated": "warning",
    "unknown": "warning",
}
_KIND: Mapping[Case, str] = {"desynchronised": "producer_desynchronised", "unknown": "standing_unknown"}


def classify(evidence: Evidence, *, at: float = 0.0) -> LossFinding:
    """The case that the evidence proves; `unknown` when it proves none. No clock, no broker."""
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
    """Step by step, each able to end it: the topic, the message in doubt, the mark, the log around it."""
    for step in (_topic, _duplicate, _nothing, _log, _record):
        if (decided := step(evidence)) is not None:
            return decided
    return _unknown(evidence, evidence.look.trouble or "the record could not be read")


def _topic(evidence: Evidence) -> tuple[Case, str] | None:
    look, last = evidence.look, evidence.last
    if last is None:
        return None
    before = f"what was acknowledged up to offset {last.offset:,} went with it"
    if look.exists is False:
        return "topic_recreated", f"The topic {evidence.topic} does not exist any more: {before}."
    if evidence.topic_id and look.topic_id:
        if evidence.topic_id == look.topic_id:
            return None
        ids = f"its id was {evidence.topic_id}, now it is {look.topic_id}"
    elif look.low == look.high == 0:  # a cluster without topic ids: a log cut back to nothing looks the same
        ids = f"{evidence.where} is empty from offset 0 on"
    else:
        return None
    return "topic_recreated", f"The topic {evidence.topic} was deleted and made again ({ids}): {before}."


def _duplicate(evidence: Evidence) -> tuple[Case, str] | None:
    """A success without an offset: the message itself is looked for, not the mark."""
    if evidence.trigger != "duplicate":
        return None
    landing = evidence.look.landing
    if landing is None or landing.outcome == "inconclusive":
        return _unknown(evidence, landing.text if landing else evidence.look.trouble or "nobody answered")
    if landing.outcome == "found":
        text = f"The broker had a message of {evidence.where} already when it came again: {landing.text}"
        return "duplicate_confirmed", text
    text = (
        f"The broker took a message of {evidence.where} for a duplicate and so acknowledged it, yet it is not there. "
        f"{landing.text}"
    )
    return "acknowledged_lost", text


def _nothing(evidence: Evidence) -> tuple[Case, str] | None:
    if evidence.last is not None:
        return None
    if evidence.forgotten:
        return _unknown(evidence, "more partitions were written than are remembered")
    return "nothing_to_lose", f"Nothing was acknowledged on {evidence.where} yet, so nothing can be missing."


def _log(evidence: Evidence) -> tuple[Case, str] | None:
    """The last acknowledged offset against both ends of the log."""
    look, last = evidence.look, evidence.last
    if last is None or look.low is None or look.high is None:
        return None
    if look.low > last.offset:
        text = (
            f"Retention removed everything we had written to {evidence.where}: its log begins at offset "
            f"{look.low:,} now, the last acknowledged one was {last.offset:,}."
        )
        return "retention_removed", text
    if last.offset >= look.high:
        text = (
            f"Acknowledged records of {evidence.where} are gone: offset {last.offset:,} was acknowledged "
            f"{_when(last)}, but the log ends before offset {look.high:,}; at least "
            f"{last.offset - look.high + 1:,} are missing."
        )
        return "acknowledged_lost", text
    return None


def _record(evidence: Evidence) -> tuple[Case, str] | None:
    """The record at the last acknowledged offset: ours, another one, or none."""
    look, last = evidence.look, evidence.last
    if last is None or look.found_at is None:
        return None
    if look.found_at == last.offset:
        return _still_there(evidence, last) if _ours(evidence, last) else _overwritten(evidence, last)
    if look.compacted:
        text = f"Offset {last.offset:,} of {evidence.where} was compacted away; the log around it is there."
        return "intact", text
    if look.compacted is None:
        return _unknown(
            evidence,
            f"no record is at offset {last.offset:,}, and whether the topic is compacted is not known "
            "(grant DESCRIBE_CONFIGS on it)",
        )
    text = (
        f"The record at offset {last.offset:,} of {evidence.where}, acknowledged {_when(last)}, is gone: "
        f"the next one is at {look.found_at:,}, and the topic is not compacted."
    )
    return "acknowledged_lost", text


def _ours(evidence: Evidence, last: Checkpoint) -> bool:
    found = evidence.look.found_id
    if found is None or len(found) != 24:
        return False
    return last.seq < 0 or found == evidence.session + last.seq.to_bytes(8, "big")


def _still_there(evidence: Evidence, last: Checkpoint) -> tuple[Case, str]:
    span = f"offset {last.offset:,} holds our record, the log goes from {evidence.look.low:,} to {evidence.look.high:,}"
    if evidence.trigger in CODES.values():
        text = (
            f"The client and the broker fell out of step on {evidence.where}, but nothing acknowledged is "
            f"missing: {span}."
        )
        return "desynchronised", text
    return "intact", f"Nothing acknowledged is missing on {evidence.where}: {span}."


def _overwritten(evidence: Evidence, last: Checkpoint) -> tuple[Case, str]:
    text = (
        f"Acknowledged records of {evidence.where} are gone: at offset {last.offset:,}, acknowledged "
        f"{_when(last)}, there is another record now. The log was cut back and written over."
    )
    return "acknowledged_lost", text


def _unknown(evidence: Evidence, why: str) -> tuple[Case, str]:
    why = why.rstrip(".")
    return "unknown", f"Whether {evidence.where} still holds what it acknowledged cannot be said: {why}."


def _numbers(evidence: Evidence) -> dict[str, Any]:
    last, look = evidence.last, evidence.look
    numbers = {
        "last_acknowledged": last.offset if last else None,
        "acknowledged_at": last.at if last else None,
        "low_watermark": look.low,
        "high_watermark": look.high,
        "record_at": look.found_at,
    }
    return {name: value for name, value in numbers.items() if value is not None}


def _when(mark: Checkpoint) -> str:
    if not mark.at:
        return "in an earlier run"
    return time.strftime("at %Y-%m-%d %H:%M:%S UTC", time.gmtime(mark.at))


NEEDS_A_SECOND_LOOK: tuple[Case, ...] = ("acknowledged_lost", "topic_recreated")
"""Right after a leader changed, a broker may show less than it has: these are said when they were seen twice."""

_ADVICE: Mapping[Case, str] = {
    "intact": "Nothing to do.",
    "nothing_to_lose": "Nothing to do.",
    "retention_removed": "Nothing to do; raise the topic's retention if its readers had not come that far.",
    "desynchronised": "Nothing is lost, and the client goes on by itself. If it returns, look for restarts in the "
    "broker's log and at its producer.id.expiration.ms.",
    "duplicate_confirmed": "Nothing to do: the message is on the topic once.",
    "topic_recreated": "If nobody meant to delete the topic, ask who did; what it held has to be sent again.",
    "acknowledged_lost": "Look for an unclean leader election, a lost disk or a restored backup, and send the missing "
    "records again from their source. Messages in doubt become dead letters there, none is sent again, until "
    "producer.go_on(topic).",
    "unknown": "Grant READ and DESCRIBE on the topic, or see to the connection; it is asked again meanwhile.",
}

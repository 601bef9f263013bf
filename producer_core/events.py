"""Events of a message's delivery, as frozen values, and the hook that receives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["local", "permanent", "temporary", "timed_out", "fatal"]
Verdict = Literal["not_sent", "rejected", "possibly_persisted", "found", "absent", "inconclusive"]
SAFE_VERDICTS: tuple[Verdict, ...] = ("not_sent", "rejected", "absent")
"""Verdicts with which a resend cannot write a second copy."""

State = Literal["dead", "replaying", "replayed", "landed", "archived", "purged"]
Severity = Literal["info", "warning", "critical"]

Remark = Literal["possible_duplicates", "landed", "order_breaks"]
"""`possible_duplicates`: sent again although the broker may have the message. `landed`: found on its topic instead.
`order_breaks`: acknowledged while an earlier message of the same key still waited for its retry."""


class Acknowledged(NamedTuple):
    """A message that the broker has. Latency is librdkafka's, in seconds from produce to acknowledgement; 0 if a probe
    found the message on its topic and the latency is unknown.

    `offset` is None if the broker had the message already and did not report its offset. `seq` is -1 for a message of
    another session, such as a replayed one. `id` is the record's whole id header: session and sequence.
    """

    topic: str
    partition: int
    offset: int | None
    latency: float
    size: int
    attempts: int
    seq: int
    id: bytes = b""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed delivery attempt: its time in seconds since 1970, its error code, and librdkafka's text."""

    failed_at: float
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A delivery report with an error. `retry_in` is the delay until the resend in seconds, None without a resend.

    `ambiguous`: the broker may have the message, so a resend may write a second copy.
    """

    message_id: str
    topic: str
    code: str
    kind: Kind
    text: str
    attempt: int
    retry_in: float | None
    ambiguous: bool
    at: float


NEVER_A_MESSAGE = "It never became a message."
"""The verdict's reason for malformed input."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that the producer no longer sends by itself, with all its bytes and every attempt.

    Times are seconds since 1970. `verdict` says whether a resend is safe, and `verdict_reason` why.
    `partition` is the requested one, None if the partitioner chooses. `source` names the origin of malformed input
    ("line 17 of flights.csv"); such a dead letter cannot be replayed until it is edited.
    `application` is the name of the application that wrote the message, and `application_version` the version of the
    application whose attempt failed last; empty for none.
    """

    message_id: str
    cluster_id: str
    producer_id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None
    verdict: Verdict
    verdict_reason: str
    kind: Kind
    code: str
    error_text: str
    fingerprint: str
    attempts: tuple[Attempt, ...]
    accepted_at: float
    failed_at: float
    replayable: bool = True
    source: str | None = None
    host: str = ""
    version: str = ""
    state: State = "dead"
    quarantined: bool = False
    replay_count: int = 0
    application: str = ""
    application_version: str = ""

    @property
    def never_a_message(self) -> bool:
        """Whether this is malformed input, such as a line of a file that could not be parsed."""
        return not self.replayable and self.verdict_reason == NEVER_A_MESSAGE


@dataclass(frozen=True, slots=True)
class Notice:
    """An event for the operator: its kind (`connection_lost`), a sentence and details."""

    kind: str
    severity: Severity
    text: str
    at: float
    details: Mapping[str, Any] = field(default_factory=dict)


class Hook:
    """Receives events; override the methods you need. They run on the poll thread: return quickly, never block."""

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        """Messages that the broker has, in the order of their reports. Usually `ack_batch.Acknowledgements`, whose columns
        are cheaper to read than its items."""

    def attempt_failed(self, event: AttemptFailed) -> None:
        """A delivery report had an error; the message may be sent again."""

    def died(self, dead_letter: DeadLetter) -> None:
        """A message became a dead letter."""

    def duplicate(self, topic: str) -> None:
        """A message was suppressed as a confirmed duplicate."""

    def counted(self, topic: str, what: Remark) -> None:
        """An event of one message that only statistics count."""

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        """librdkafka's statistics, once a second."""

    def connection_failed(self, reason: str) -> None:
        """A broker is unreachable, or refused the connection. `reason` is librdkafka's text, with the address."""

    def notice(self, notice: Notice) -> None:
        """A change in the client's state."""

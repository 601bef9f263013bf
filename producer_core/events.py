"""What can happen to a message, as frozen values, and the hook that hears of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["local", "permanent", "temporary", "timed_out", "fatal"]
Verdict = Literal["not_sent", "rejected", "possibly_persisted", "found", "absent", "inconclusive"]
SAFE_VERDICTS: tuple[Verdict, ...] = ("not_sent", "rejected", "absent")
"""A resend of these cannot write a second copy."""

State = Literal["dead", "replaying", "replayed", "landed", "archived", "purged"]
Severity = Literal["info", "warning", "critical"]

Remark = Literal["possible_duplicates", "landed", "order_breaks"]
"""`possible_duplicates`: sent again although the broker may have it. `landed`: found on its topic instead.
`order_breaks`: acknowledged while an earlier message of its key still waited for its retry."""


class Acknowledged(NamedTuple):
    """The broker has the message. Latency is librdkafka's own, in seconds, from produce to acknowledgement; 0 when a
    look found the message on its topic, where nobody knows it.

    `offset` is None where the broker had the message already and did not say where. `seq` is -1 for a message of
    another session, such as a replayed one; `id` is the record's id header whole: session and sequence.
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
    """One try that failed: when (seconds since 1970), with which code, in the library's words."""

    failed_at: float
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A delivery report with an error. `retry_in` is seconds until we send again, None when we do not.

    `ambiguous`: the broker may have the message all the same, so sending again may write it twice.
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
"""The reason of the verdict on an input that could not become a message."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that will not be sent again by itself, with all its bytes and its whole story.

    Times are seconds since 1970. `verdict` says whether a resend is safe, `verdict_reason` why we say so.
    `partition` is the one asked for, None when the partitioner was to choose. `source` names where a
    malformed input came from («line 17 of flights.csv»); such a dead letter is not replayable until edited.
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

    @property
    def never_a_message(self) -> bool:
        """Return whether it is an input that was read and could not be accepted, such as a malformed line."""
        return not self.replayable and self.verdict_reason == NEVER_A_MESSAGE


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the operator should hear: a word for it (`connection_lost`), a sentence, and what is known."""

    kind: str
    severity: Severity
    text: str
    at: float
    details: Mapping[str, Any] = field(default_factory=dict)


class Hook:
    """Hears what happens; every method is optional. Called on the poll thread: be quick, never block."""

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        """Messages the broker has, in the order of their reports. Mostly `acknowledgements.Acknowledgements`, whose
        columns cost less to read than its items."""

    def attempt_failed(self, event: AttemptFailed) -> None:
        """A delivery report came back with an error; the message may be tried again."""

    def died(self, dead_letter: DeadLetter) -> None:
        """A message became a dead letter."""

    def duplicate(self, topic: str) -> None:
        """A message was suppressed as a confirmed duplicate."""

    def counted(self, topic: str, what: Remark) -> None:
        """Something about one message that statistics count and nobody else does."""

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        """librdkafka's statistics, once a second."""

    def connection_failed(self, reason: str) -> None:
        """A broker cannot be reached, or refused the connection: librdkafka's words, with the address."""

    def notice(self, notice: Notice) -> None:
        """A change of the client's own state."""

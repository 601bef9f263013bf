"""A burial: how a message that is given up becomes a dead letter, and what verdict it gets; and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from producer_core.delivery.delivery import Delivery
from producer_core.events import NEVER_A_MESSAGE, Attempt, DeadLetter, Verdict
from producer_core.kafka.classify import Failure, failure_of, fingerprint, judge
from producer_core.messages import ANYWHERE, ORIGINAL_TIMESTAMP, Headers, Placement, id_text, parse_id


@dataclass(frozen=True)
class ProducerInfo:
    """Who sends: what each dead letter says of its producer."""

    producer_id: str
    host: str
    version: str
    cluster_id: Callable[[], str]


class ReplayRecord(NamedTuple):
    """What sending a dead letter again takes, without its story: its record, and the doubt it is in."""

    message_id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    accepted_at: float
    verdict: Verdict
    verdict_reason: str

    @property
    def size(self) -> int:
        """Bytes of its key and value."""
        return len(self.value or b"") + len(self.key or b"")


def dead_letter(
    delivery: Delivery, failure: Failure, *, origin: ProducerInfo, proof: tuple[Verdict, str] | None = None
) -> DeadLetter:
    """The letter of a message whose last attempt ended in `failure`.

    `proof` is a verdict and its reason that stand above the attempts: statistics that show that no request ever
    left, or a look at the topic after the last request could arrive.
    """
    last = delivery.attempts[-1][0]
    verdict, reason = proof or _worst(delivery, failure)
    return DeadLetter(
        message_id=id_text(delivery.id),
        cluster_id=origin.cluster_id(),
        producer_id=origin.producer_id,
        topic=delivery.topic,
        key=delivery.key,
        value=delivery.value,
        headers=tuple(delivery.headers),
        partition=None if delivery.partition < 0 else delivery.partition,
        timestamp_ms=delivery.placement.timestamp_ms or None,
        verdict=verdict,
        verdict_reason=reason,
        kind=failure.kind,
        code=failure.code,
        error_text=last.text,
        fingerprint=fingerprint(failure.code, last.text),
        attempts=tuple(attempt for attempt, _ in delivery.attempts),
        accepted_at=delivery.accepted_at,
        failed_at=last.failed_at,
        host=origin.host,
        version=origin.version,
    )


def from_malformed_input(
    message_id: str,
    topic: str,
    *,
    origin: ProducerInfo,
    key: bytes | None,
    raw: bytes | None,
    code: str,
    text: str,
    source: str | None,
    now: float,
) -> DeadLetter:
    """The letter of an input that cannot become a message: not replayable until somebody edited it."""
    failure = failure_of(code)
    return DeadLetter(
        message_id, origin.cluster_id(), origin.producer_id, topic, key, raw, (), None, None, "not_sent",
        NEVER_A_MESSAGE, failure.kind, failure.code, text, fingerprint(failure.code, text),
        (Attempt(now, failure.code, text),), now, now, replayable=False, source=source, host=origin.host,
        version=origin.version,
    )  # fmt: skip


def delivery_of(letter: DeadLetter | ReplayRecord) -> Delivery:
    """The record as a replay sends it: its own id, its own headers, the time now, and its first time in a header."""
    headers = letter.headers
    if all(name != ORIGINAL_TIMESTAMP for name, _ in headers):
        original = b"%d" % (letter.timestamp_ms or int(letter.accepted_at * 1000))
        headers = [*headers, (ORIGINAL_TIMESTAMP, original)]
    placement = ANYWHERE if letter.partition is None else Placement(letter.partition)
    return Delivery(
        parse_id(letter.message_id), -1, letter.topic, letter.key, letter.value, headers, placement
    )


def _worst(delivery: Delivery, failure: Failure) -> tuple[Verdict, str]:
    """The worst that any attempt leaves possible; a later refusal does not undo an earlier doubt."""
    verdicts = [verdict for _, verdict in delivery.attempts]
    if "possibly_persisted" in verdicts:
        doubtful = verdicts.index("possibly_persisted")
        code = delivery.attempts[doubtful][0].code
        # as one that took too long to be sure
        _, why = judge(failure_of(code), latency=None, retry_backoff=0.0)
        return "possibly_persisted", f"Attempt {doubtful + 1}: {why}"
    if verdicts[-1] == "rejected":
        return "rejected", f"The broker refused its only transmission ({failure.code})."
    return "not_sent", f"It never left the client ({failure.code})."

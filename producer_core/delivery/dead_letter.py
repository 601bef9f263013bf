"""Turn a message into a dead letter with a verdict, and a dead letter into a message for its replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from producer_core.delivery.delivery import Delivery
from producer_core.events import NEVER_A_MESSAGE, Attempt, DeadLetter, Verdict
from producer_core.kafka.classify import Failure, failure_of, fingerprint, judge, not_sent_verdict
from producer_core.messages import ANYWHERE, ORIGINAL_TIMESTAMP, Headers, Placement, id_text, parse_id


@dataclass(frozen=True)
class ProducerInfo:
    """The facts about a producer that each of its dead letters records."""

    producer_id: str
    host: str
    version: str
    cluster_id: Callable[[], str]
    application: str = ""
    application_version: str = ""


class ReplayRecord(NamedTuple):
    """The part of a dead letter that its replay needs: its record and its verdict."""

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
        """The size of key and value in bytes."""
        return len(self.value or b"") + len(self.key or b"")


def make_dead_letter(
    delivery: Delivery, failure: Failure, *, producer: ProducerInfo, proof: tuple[Verdict, str] | None = None
) -> DeadLetter:
    """Return the dead letter of a message whose last attempt ended in `failure`.

    `proof` is a verdict with its reason that overrides those of the attempts, for example from a probe of the topic.
    """
    last = delivery.attempts[-1][0]
    verdict, reason = proof or _worst(delivery, failure)
    return DeadLetter(
        message_id=id_text(delivery.id),
        cluster_id=producer.cluster_id(),
        producer_id=producer.producer_id,
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
        host=producer.host,
        version=producer.version,
        application=producer.application,
        application_version=producer.application_version,
    )


def from_malformed_input(
    message_id: str,
    topic: str,
    *,
    producer: ProducerInfo,
    key: bytes | None,
    raw: bytes | None,
    code: str,
    text: str,
    source: str | None,
    now: float,
) -> DeadLetter:
    """Return the dead letter of an input that cannot become a message; it is not replayable until it is edited."""
    failure = failure_of(code)
    return DeadLetter(
        message_id, producer.cluster_id(), producer.producer_id, topic, key, raw, (), None, None, "not_sent",
        NEVER_A_MESSAGE, failure.kind, failure.code, text, fingerprint(failure.code, text),
        (Attempt(now, failure.code, text),), now, now, replayable=False, source=source, host=producer.host,
        version=producer.version, application=producer.application,
        application_version=producer.application_version,
    )  # fmt: skip


def delivery_of(record: DeadLetter | ReplayRecord) -> Delivery:
    """Return the message that a replay sends: the same id and headers, a new timestamp, the original one in a header."""
    headers = record.headers
    if all(name != ORIGINAL_TIMESTAMP for name, _ in headers):
        original = b"%d" % (record.timestamp_ms or int(record.accepted_at * 1000))
        headers = [*headers, (ORIGINAL_TIMESTAMP, original)]
    placement = ANYWHERE if record.partition is None else Placement(record.partition)
    return Delivery(
        parse_id(record.message_id), -1, record.topic, record.key, record.value, headers, placement
    )


def _worst(delivery: Delivery, failure: Failure) -> tuple[Verdict, str]:
    """Return the worst verdict of all attempts: a later refusal does not resolve an earlier ambiguous one."""
    verdicts = [verdict for _, verdict in delivery.attempts]
    if "possibly_persisted" in verdicts:
        ambiguous = verdicts.index("possibly_persisted")
        code = delivery.attempts[ambiguous][0].code
        # Without a latency, `judge` gives the reason of an attempt whose duration proves nothing.
        _, reason = judge(failure_of(code), latency=None, retry_backoff=0.0)
        attempt = "Replay attempt" if delivery.on_replayed else "Attempt"
        return "possibly_persisted", f"{attempt} {ambiguous + 1}: {reason}"
    rejected = [attempt for attempt, verdict in delivery.attempts if verdict == "rejected"]
    if rejected:
        return "rejected", _rejection(rejected, whose="replay" if delivery.on_replayed else "message")
    if delivery.on_replayed:
        return "not_sent", f"The replay did not send the message: it never left the client ({failure.code})."
    return not_sent_verdict(failure)


def _rejection(attempts: Sequence[Attempt], *, whose: str) -> str:
    """Return how often the broker rejected a message. A replay is a further transmission of its message."""
    number, code = len(attempts), attempts[-1].code
    times = (
        f"the {whose}'s only transmission" if number == 1 else f"each of the {whose}'s {number} transmissions"
    )
    return f"The broker rejected {times} ({code})."

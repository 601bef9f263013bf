"""Define the results that a caller receives for a message: its report, the message itself, or the result of a replay."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from producer_core.delivery.delivery import Delivery
from producer_core.events import DeadLetter, Verdict
from producer_core.messages import Message, MessageStatus, decode_value, id_text


@dataclass(frozen=True)
class ReplayResult:
    """The result of the replay of one dead letter. `dead_letter` is the new dead letter if it failed again."""

    message_id: str
    outcome: Literal["acknowledged", "failed"]
    partition: int | None = None
    offset: int | None = None
    dead_letter: DeadLetter | None = None
    text: str = ""


@dataclass(frozen=True)
class DeliveryReport:
    """The outcome of a message; `error` is None when the broker acknowledged it. The latency is in seconds."""

    message_id: str
    record_id: Any
    topic: str
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    attempts: int
    latency: float | None
    error: str | None = None
    verdict: Verdict | None = None
    duplicate: bool = False


@dataclass(frozen=True)
class CloseReport:
    """Counts what this producer accepted by its place after close()."""

    acknowledged: int
    dead: int
    journaled: int = 0
    lost: int = 0

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        facts = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return html.page("Messages after close", facts=facts)


def delivery_report(delivery: Delivery, message: Any, dead_letter: DeadLetter | None) -> DeliveryReport:
    """Return the report: dead with a dead letter, acknowledged with the client's message, else a duplicate."""
    partition = offset = timestamp = latency = None
    if message is not None:
        partition, offset, latency = message.partition(), message.offset(), message.latency()
        timestamp = message.timestamp()[1]
    return DeliveryReport(
        message_id=id_text(delivery.id),
        record_id=None if delivery.callbacks is None else delivery.callbacks.record_id,
        topic=delivery.topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp,
        attempts=len(delivery.attempts) + (dead_letter is None),
        latency=latency,
        error=dead_letter.error_text if dead_letter else None,
        verdict=dead_letter.verdict if dead_letter else None,
        duplicate=dead_letter is None and message is None,
    )


def as_message(delivery: Delivery, status: MessageStatus, error: str | None = None) -> Message:
    """Return the message for its sender. A JSON value is decoded; other bytes stay bytes."""
    return Message(
        id=id_text(delivery.id),
        topic=delivery.topic,
        key=None if delivery.key is None else delivery.key.decode(errors="replace"),
        value=decode_value(delivery.value),
        timestamp=datetime.fromtimestamp(delivery.accepted_at),
        status=status,
        retry_count=len(delivery.attempts) - (status is MessageStatus.DLQ and bool(delivery.attempts)),
        last_error=error or (delivery.attempts[-1][0].text if delivery.attempts else None),
        checksum=delivery.checksum,
    )

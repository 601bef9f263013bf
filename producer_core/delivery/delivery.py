"""A message on its way: its record, where it is, and the callbacks for its outcome."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import KafkaError

from producer_core.events import Attempt, Verdict
from producer_core.messages import ANYWHERE, ID_HEADER, Headers, MessageStatus, Placement


def _no_report(row: object) -> None:
    """Take the place of a client's report function while no client has the message."""


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Where a delivery is. `generation` numbers the client that has it; below 0 no client has it.

    `report` takes a row of `ReportBatch`.
    """

    generation: int
    report: Callable[[tuple[Any, ...]], None] = _no_report


QUEUED, PROBING, AWAITING_DUPLICATE = DeliveryState(-1), DeliveryState(-2), DeliveryState(-3)
"""Waiting for its turn or a retry; for a probe of its topic; or for the outcome of the message it duplicates."""
IN_CLIENT = DeliveryState(sys.maxsize)
"""Being handed to a client. A client that breaks at this moment does not have it."""


Ended = Literal["sent", "failed", "duplicate"]


@dataclass(slots=True)
class Callbacks:
    """The callbacks for one message's outcome; most messages have none. `record_id` is the caller's own id."""

    callback: Callable[[bool, Any, Any], None] | None = None
    on_delivery: Callable[[Any], None] | None = None
    record_id: Any = None
    on_settled: Callable[[Ended], None] | None = None
    """For a batch, which only counts outcomes and sets none of the callbacks above."""
    on_unsent: Callable[[int, Any], None] | None = None
    """Beside `on_settled`: the sequence of a message that was not sent, and its dead letter; None for a duplicate."""
    on_replayed: Callable[[Any], None] | None = None
    """For the replay of a dead letter; the journal does not keep such a message."""

    @property
    def need_report(self) -> bool:
        """Whether a `DeliveryReport` must be made."""
        return self.callback is not None or self.on_delivery is not None


class Delivery:
    """The record to produce, the pending entry and librdkafka's delivery callback in one object."""

    # Slots that are all set cost less than class attributes: those of an instance with slots are found at once.
    __slots__ = (
        "accepted_at", "attempts", "callbacks", "checksum", "headers", "id", "key", "place", "placement", "seq", "topic", "value",
    )  # fmt: skip

    def __init__(
        self,
        id: bytes,
        seq: int,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        placement: Placement = ANYWHERE,
    ) -> None:
        self.id = id
        self.seq = seq
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers  # the user's
        self.placement = placement
        self.attempts: tuple[tuple[Attempt, Verdict], ...] = ()
        self.accepted_at = 0.0
        self.checksum: str | None = None
        self.callbacks: Callbacks | None = None
        self.place = QUEUED

    @property
    def record_headers(self) -> list[tuple[str, bytes | None]]:
        """The record's headers: the id first, then the user's. Built for each attempt, to save memory while messages wait."""
        own: list[tuple[str, bytes | None]] = [(ID_HEADER, self.id)]
        return [*own, *self.headers] if self.headers else own

    @property
    def partition(self) -> int:
        return self.placement.partition

    @property
    def status(self) -> MessageStatus:
        """Its public status while it is pending."""
        if self.place is AWAITING_DUPLICATE:
            return MessageStatus.DUPLICATE
        return MessageStatus.RETRYING if self.attempts and not self.in_flight else MessageStatus.PENDING

    @property
    def in_flight(self) -> bool:
        """Whether a client has it and its report is outstanding."""
        return self.place.generation >= 0

    @property
    def on_replayed(self) -> Callable[[Any], None] | None:
        return None if self.callbacks is None else self.callbacks.on_replayed

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """Take its delivery report; librdkafka calls this."""
        self.place.report(self.row(error, message))

    def row(self, error: KafkaError | None, message: Any) -> tuple[Any, ...]:
        """The report as a row of `ReportBatch`."""
        if error is not None:
            return self, (error, message), None, 0, None
        offset, callbacks = message.offset(), self.callbacks
        if self.attempts or (callbacks is not None and callbacks.on_settled is None):
            return self, (None, message), None, offset, None
        return self, None, message.partition(), offset, message.latency()


Report = tuple[Delivery, KafkaError | None, Any]
"""A delivery report: the delivery, its error or None, and confluent_kafka's Message."""

"""Hold one message between acceptance and settlement: its record, its state, and the callbacks for its outcome."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from confluent_kafka import KafkaError

from producer_core.events import Attempt, Verdict
from producer_core.messages import ANYWHERE, ID_HEADER, Headers, MessageStatus, Placement

if TYPE_CHECKING:
    from producer_core.events import AttemptFailed, DeadLetter


def _no_report(row: object) -> None:
    """Ignore a report. The report function of a message that no client has."""


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Where a message is. `generation` is the number of the client that has it; below 0 no client has it.

    `report` receives a row of `ReportBatch`.
    """

    generation: int
    report: Callable[[tuple[Any, ...]], None] = _no_report


QUEUED, PROBING, AWAITING_DUPLICATE = DeliveryState(-1), DeliveryState(-2), DeliveryState(-3)
"""Waiting for its turn or a retry; for a probe of its topic; for the outcome of the message it duplicates."""
IN_CLIENT = DeliveryState(sys.maxsize)
"""Being passed to a client. A client that fails at this moment does not have the message."""


SendOutcome = Literal["sent", "failed", "duplicate"]


class DeliverySpan(Protocol):
    """Traces one message or a batch. Every method returns at once and may be called from any thread."""

    def attempt_failed(self, event: AttemptFailed) -> None: ...
    def probed(self, result: str) -> None: ...
    def settled(self, message: Any, dead_letter: DeadLetter | None) -> None:
        """Note the outcome of a message. Without both arguments it is a duplicate."""

    def not_accepted(self, error: BaseException) -> None: ...


@dataclass(slots=True)
class Callbacks:
    """The callbacks for one message's outcome; most messages have none. `record_id` is an id of the caller's choice."""

    callback: Callable[[bool, Any, Any], None] | None = None
    on_delivery: Callable[[Any], None] | None = None
    record_id: Any = None
    on_settled: Callable[[SendOutcome], None] | None = None
    """Set by a batch, which only counts outcomes; the callbacks above are then unset."""
    on_unsent: Callable[[int, Any], None] | None = None
    """Set together with `on_settled`. Receives the sequence of a message that was not sent, and its dead letter, which is
    None for a duplicate."""
    on_replayed: Callable[[Any], None] | None = None
    """Set by the replay of a dead letter. The journal does not keep such a message."""
    span: DeliverySpan | None = None
    """Set for a traced message whose trace is recorded, and for a traced batch."""

    @property
    def need_report(self) -> bool:
        """Whether a callback needs a `DeliveryReport`."""
        return self.callback is not None or self.on_delivery is not None


class Delivery:
    """Combines the record to produce, the entry in `pending` and librdkafka's delivery callback in one object."""

    # Every field is a slot that __init__ sets: it is found faster than a default in the class.
    __slots__ = (
        "accepted_at", "attempts", "callbacks", "checksum", "headers", "id", "key", "placement", "seq", "state", "topic", "value",
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
        self.state = QUEUED

    @property
    def record_headers(self) -> list[tuple[str, bytes | None]]:
        """The record's headers: the id, then the user's. Built for each attempt, to save memory while messages wait."""
        id_header: list[tuple[str, bytes | None]] = [(ID_HEADER, self.id)]
        return [*id_header, *self.headers] if self.headers else id_header

    @property
    def partition(self) -> int:
        return self.placement.partition

    @property
    def status(self) -> MessageStatus:
        """The public status of the message while it is pending."""
        if self.state is AWAITING_DUPLICATE:
            return MessageStatus.DUPLICATE
        return MessageStatus.RETRYING if self.attempts and not self.in_flight else MessageStatus.PENDING

    @property
    def in_flight(self) -> bool:
        """Whether a client has the message and has not reported it."""
        return self.state.generation >= 0

    @property
    def span(self) -> DeliverySpan | None:
        return None if self.callbacks is None else self.callbacks.span

    @property
    def on_replayed(self) -> Callable[[Any], None] | None:
        return None if self.callbacks is None else self.callbacks.on_replayed

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """Receive the delivery report from librdkafka."""
        self.state.report(self.row(error, message))

    def row(self, error: KafkaError | None, message: Any) -> tuple[Any, ...]:
        """Return the report as a row of `ReportBatch`."""
        if error is not None:
            return self, (error, message), None, 0, None
        offset, callbacks = message.offset(), self.callbacks
        if self.attempts or (callbacks is not None and callbacks.on_settled is None):
            return self, (None, message), None, offset, None
        return self, None, message.partition(), offset, message.latency()


Report = tuple[Delivery, KafkaError | None, Any]
"""A delivery report: the delivery, its error or None, and confluent_kafka's Message."""

"""A delivery: one message on its way, where it is, and who hears how it ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import KafkaError

from producer_core.events import Attempt, Verdict
from producer_core.messages import ANYWHERE, ID_HEADER, Headers, MessageStatus, Placement


def _nobody(row: object) -> None:
    """Hears of what no client has."""


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Where deliveries are: with the client of this generation, which `report`s a row of `ReportBatch`; below 0 with none."""

    generation: int
    report: Callable[[tuple[Any, ...]], None] = _nobody


QUEUED, PROBING, AWAITING_DUPLICATE = DeliveryState(-1), DeliveryState(-2), DeliveryState(-3)
"""It waits for its turn or a retry; for an answer whether it is on its topic; or for the end of the message it is a copy of."""
IN_CLIENT = DeliveryState(sys.maxsize)
"""On its way to a client, of no generation yet: one that breaks at this moment does not have it."""


Ended = Literal["sent", "failed", "duplicate"]


@dataclass(slots=True)
class Callbacks:
    """Who wants to hear how a message ended, and under which id of his own; most messages have none."""

    callback: Callable[[bool, Any, Any], None] | None = None
    on_delivery: Callable[[Any], None] | None = None
    record_id: Any = None
    ended: Callable[[Ended], None] | None = None
    """Who only counts, and has none of the others: a batch."""
    unsent: Callable[[int, Any], None] | None = None
    """Beside `ended`: the number of a message that was not sent, and its dead letter; None for a duplicate."""
    replay: Callable[[Any], None] | None = None
    """Whoever replays a dead letter; the journal does not keep such a message."""

    @property
    def listens(self) -> bool:
        """Whether a report is made for him."""
        return self.callback is not None or self.on_delivery is not None


class Delivery:
    """One message on its way: the record to produce, the pending entry, and the delivery callback in one object."""

    # Slots that are all set cost less than class attributes: those of an instance with slots are found at once.
    __slots__ = (
        "accepted_at", "attempts", "checksum", "headers", "id", "key", "owner", "place", "placement", "seq", "topic", "value",
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
        self.owner: Callbacks | None = None
        self.place = QUEUED

    @property
    def record_headers(self) -> list[tuple[str, bytes | None]]:
        """What the record carries: the id first, then the user's. Made anew for each try, for many wait at once."""
        own: list[tuple[str, bytes | None]] = [(ID_HEADER, self.id)]
        return [*own, *self.headers] if self.headers else own

    @property
    def partition(self) -> int:
        return self.placement.partition

    @property
    def status(self) -> MessageStatus:
        """As its owner sees it, while it is pending."""
        if self.place is AWAITING_DUPLICATE:
            return MessageStatus.DUPLICATE
        return MessageStatus.RETRYING if self.attempts and not self.flying else MessageStatus.PENDING

    @property
    def flying(self) -> bool:
        """With the client, its report outstanding."""
        return self.place.generation >= 0

    @property
    def replay(self) -> Callable[[Any], None] | None:
        return None if self.owner is None else self.owner.replay

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """Its delivery report."""
        self.place.report(self.row(error, message))

    def row(self, error: KafkaError | None, message: Any) -> tuple[Any, ...]:
        """The report as a row of `ReportBatch`."""
        if error is not None:
            return self, (error, message), None, 0, None
        offset, owner = message.offset(), self.owner
        if self.attempts or (owner is not None and owner.ended is None):
            return self, (None, message), None, offset, None
        return self, None, message.partition(), offset, message.latency()


Report = tuple[Delivery, KafkaError | None, Any]
"""A delivery report: the delivery, its error or None, and confluent_kafka's Message."""

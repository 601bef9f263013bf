"""The outcome of one message in a transaction: its position in the log, or the proven result of a failure."""

from __future__ import annotations

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.log_positions import LogPosition
from producer_core.events import Verdict


class TransactionOutcome:
    """Report the outcome of a message with the methods of confluent_kafka's Message that the delivery engine calls.

    `verdict` is what the fence and the read-back prove about a failed message; None means that its outcome is
    ambiguous. `held_back` is the reason why the message is not sent again, if there is one.
    """

    __slots__ = ("_delivery", "_latency", "_position", "held_back", "verdict")

    def __init__(
        self,
        delivery: Delivery,
        verdict: Verdict | None = None,
        position: LogPosition | None = None,
        latency: float | None = None,
        held_back: str | None = None,
    ) -> None:
        self.verdict = verdict
        self.held_back = held_back
        self._delivery = delivery
        self._position = position
        self._latency = latency

    def topic(self) -> str:
        return self._delivery.topic

    def partition(self) -> int:
        return self._position.partition if self._position else self._delivery.partition

    def offset(self) -> int | None:
        return self._position.offset if self._position else None

    def latency(self) -> float | None:
        """Return the seconds from the start of the transaction to its commit; None for a record that was read back."""
        return self._latency

    def timestamp(self) -> tuple[int, int]:
        return (1, self._position.timestamp if self._position else -1)

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._delivery.record_headers

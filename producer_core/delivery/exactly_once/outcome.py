"""What a report says of a message: where it lies, or what is proved of one that failed."""

from __future__ import annotations

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.log_positions import LogPosition
from producer_core.events import Verdict


class TransactionOutcome:
    """Has the methods of confluent_kafka's Message that the lifecycle asks, and a proof.

    `verdict` is what the fence and the read-back proved of a message that failed; None leaves it in doubt.
    `held_back`: it is not sent again, and this is the reason.
    """

    __slots__ = ("_delivery", "_latency", "_place", "held_back", "verdict")

    def __init__(
        self,
        delivery: Delivery,
        verdict: Verdict | None = None,
        place: LogPosition | None = None,
        latency: float | None = None,
        held_back: str | None = None,
    ) -> None:
        self.verdict = verdict
        self.held_back = held_back
        self._delivery = delivery
        self._place = place
        self._latency = latency

    def topic(self) -> str:
        return self._delivery.topic

    def partition(self) -> int:
        return self._place.partition if self._place else self._delivery.partition

    def offset(self) -> int | None:
        return self._place.offset if self._place else None

    def latency(self) -> float | None:
        """Seconds from the beginning of its transaction to the commit; None for one that was found."""
        return self._latency

    def timestamp(self) -> tuple[int, int]:
        return (1, self._place.timestamp if self._place else -1)

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._delivery.record_headers

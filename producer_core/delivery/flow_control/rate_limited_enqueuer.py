"""Limit the rate of accepted messages. A producer without rate limits does not have this step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.flow_control.rate_limiter import RateLimiter
from producer_core.errors import ProducerError

if TYPE_CHECKING:
    from producer_core.delivery.enqueue import Enqueuer
    from producer_core.delivery.transport import Transport


class CircuitCheck(Protocol):
    """Raises CircuitOpen: `check` for a message that would be refused now, `check_wait` for one that waits already."""

    def check(self, delivery: Delivery) -> None: ...
    def check_wait(self, delivery: Delivery) -> None: ...


class RateLimitedEnqueuer:
    """Has the methods of `MessageEnqueuer` with which messages are sent, and waits for the rate limiter before each.

    `max_block` is in seconds and covers both waits. `in_callback` returns whether the calling thread must not wait.
    `circuits` refuses messages during an outage: before a wait, and while they wait.
    """

    def __init__(
        self,
        enqueuer: Enqueuer,
        limiter: RateLimiter,
        *,
        max_block: float,
        in_callback: Callable[[], bool],
        circuits: CircuitCheck | None = None,
    ) -> None:
        self._enqueuer = enqueuer
        self._limiter = limiter
        self._max_block = max_block
        self._in_callback = in_callback
        self._circuits = circuits
        self._accept = enqueuer.accept

    @property
    def transport(self) -> Transport:
        return self._enqueuer.transport

    def accept(self, delivery: Delivery, max_block: float | None = None) -> bool:
        if not self._limiter.take_now(delivery):
            left = self._max_block if max_block is None else max_block
            max_block = left - self._wait(delivery, self._max_wait(left))
        accepted, taken_at = False, self._limiter.now()
        try:
            accepted = self._accept(delivery, max_block)
        finally:
            if not accepted:
                self._limiter.give_back(delivery, taken_at)
        return accepted

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Accept the messages of a batch, together as far as the limits let them through without a wait."""
        results: list[bool | ProducerError] = []
        ready: list[Delivery] = []

        def accept_ready() -> None:
            results.extend(self._accept_together(ready))
            ready.clear()

        for delivery in deliveries:
            try:
                if not self._limiter.take_now(delivery):
                    self._wait(delivery, self._max_wait(self._max_block), accept_ready)
            except ProducerError as error:
                accept_ready()
                results.append(error)
            else:
                ready.append(delivery)
        accept_ready()
        return results

    def _accept_together(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        if not deliveries:
            return []
        taken_at = self._limiter.now()
        results = self._enqueuer.accept_many(deliveries)
        for delivery, result in zip(deliveries, results, strict=True):
            if result is not True:
                self._limiter.give_back(delivery, taken_at)
        return results

    def resend(self, delivery: Delivery) -> None:
        """Send a dead letter again, at the rate of all other messages."""
        if not self._limiter.take_now(delivery):
            self._wait(delivery, self._max_wait(self._max_block))
        taken_at = self._limiter.now()
        try:
            self._enqueuer.resend(delivery)
        except BaseException:
            self._limiter.give_back(delivery, taken_at)
            raise

    def _wait(
        self, delivery: Delivery, max_wait: float, before_wait: Callable[[], None] = lambda: None
    ) -> float:
        """Wait for the limit, and return the seconds that the wait took. Raise CircuitOpen during an outage."""
        circuits = self._circuits
        if circuits is None:
            return self._limiter.acquire(delivery, max_wait, before_wait=before_wait)
        circuits.check(delivery)
        return self._limiter.acquire(
            delivery, max_wait, before_wait=before_wait, check=lambda: circuits.check_wait(delivery)
        )

    def _max_wait(self, max_block: float) -> float:
        return 0.0 if self._in_callback() else max_block

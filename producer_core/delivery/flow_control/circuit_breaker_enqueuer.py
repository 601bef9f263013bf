"""Refuse messages while a circuit is open. A producer without a circuit breaker does not have this step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.flow_control.circuits import Circuits
from producer_core.errors import CircuitOpen

if TYPE_CHECKING:
    from producer_core.delivery.enqueue import Enqueuer
    from producer_core.delivery.transport import Transport
    from producer_core.errors import ProducerError


class CircuitBreakerEnqueuer:
    """Has the methods of `MessageEnqueuer` with which messages are sent, and asks the circuits before each.

    With a journal every new message is accepted: it waits there until the brokers are back. A resent dead letter is not in
    the journal, so the circuits decide about it in either case. Retries of accepted messages do not pass here.
    """

    def __init__(self, enqueuer: Enqueuer, circuits: Circuits, *, journaled: bool) -> None:
        self._enqueuer = enqueuer
        self._circuits = circuits
        self._journaled = journaled
        self._accept = enqueuer.accept

    def check(self, delivery: Delivery) -> None:
        """Raise CircuitOpen for a message that would be refused now. Asked before a wait for a rate limit."""
        if self._circuits.guarded and self._decides_about(delivery):
            self._circuits.check(delivery.topic)

    def check_wait(self, delivery: Delivery) -> None:
        """Raise CircuitOpen for a message that waits, once its circuit is open."""
        if self._circuits.guarded and self._decides_about(delivery):
            self._circuits.check(delivery.topic, open_only=True)

    def _decides_about(self, delivery: Delivery) -> bool:
        return not self._journaled or delivery.on_replayed is not None

    @property
    def transport(self) -> Transport:
        return self._enqueuer.transport

    def accept(self, delivery: Delivery, max_block: float | None = None) -> bool:
        """Accept a message as `MessageEnqueuer` does. Raise CircuitOpen if its circuit is open."""
        if not self._circuits.guarded or self._journaled:
            return self._accept(delivery, max_block)
        probe, accepted = self._circuits.admit(delivery.topic), False
        try:
            accepted = self._accept(delivery, max_block)
        finally:
            if probe and not accepted:  # a duplicate, or an error
                self._circuits.return_permit(delivery.topic)
        return accepted

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Accept several messages in order. While a circuit is not closed, they are accepted one by one."""
        if not self._circuits.guarded or self._journaled:
            return self._enqueuer.accept_many(deliveries)
        return [self._accept_or_refuse(delivery) for delivery in deliveries]

    def _accept_or_refuse(self, delivery: Delivery) -> bool | ProducerError:
        try:
            probe = self._circuits.admit(delivery.topic)
        except CircuitOpen as refusal:
            return refusal
        (outcome,) = self._enqueuer.accept_many((delivery,))
        if probe and outcome is not True:
            self._circuits.return_permit(delivery.topic)
        return outcome

    def resend(self, delivery: Delivery) -> None:
        """Send a dead letter again. Raise CircuitOpen if its circuit is open."""
        probe = self._circuits.guarded and self._circuits.admit(delivery.topic)
        try:
            self._enqueuer.resend(delivery)
        except BaseException:
            if probe:
                self._circuits.return_permit(delivery.topic)
            raise

"""Trace the messages that an enqueuer accepts. A producer without tracing does not have this step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from producer_core.delivery.delivery import Delivery
from producer_core.producer.tracing.spans import BatchSpan
from producer_core.producer.tracing.tracer import MessageTracer

if TYPE_CHECKING:
    from producer_core.delivery.enqueue import Enqueuer
    from producer_core.delivery.transport import Transport
    from producer_core.errors import ProducerError


class TracingEnqueuer:
    """Has the methods of `MessageEnqueuer` with which messages are sent, and starts a span before each."""

    def __init__(self, enqueuer: Enqueuer, tracer: MessageTracer) -> None:
        self._enqueuer = enqueuer
        self._tracer = tracer

    @property
    def transport(self) -> Transport:
        return self._enqueuer.transport

    def accept(self, delivery: Delivery, max_block: float | None = None) -> bool:
        if self._joins_batch(delivery):
            return self._enqueuer.accept(delivery, max_block)
        self._tracer.begin(delivery)
        span = delivery.span
        try:
            accepted = self._enqueuer.accept(delivery, max_block)
        except BaseException as error:
            if span is not None:
                span.not_accepted(error)
            raise
        if not accepted and span is not None:
            span.settled(None, None)  # a duplicate
        return accepted

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Accept the messages of a batch."""
        for delivery in deliveries:
            self._joins_batch(delivery)
        return self._enqueuer.accept_many(deliveries)

    def resend(self, delivery: Delivery) -> None:
        self._tracer.begin(delivery)
        try:
            self._enqueuer.resend(delivery)
        except BaseException as error:
            if delivery.span is not None:
                delivery.span.not_accepted(error)
            raise

    @staticmethod
    def _joins_batch(delivery: Delivery) -> bool:
        """Write the batch's context into a message of a batch; return False for any other message."""
        span = delivery.span
        if not isinstance(span, BatchSpan):
            return False
        delivery.headers = span.headers
        return True

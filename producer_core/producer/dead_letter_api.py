"""Resend a producer's dead letters and add malformed input to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from producer_core.delivery.dead_letter import ReplayRecord, delivery_of, from_malformed_input
from producer_core.delivery.delivery import Callbacks
from producer_core.delivery.reports import ReplayResult
from producer_core.events import DeadLetter
from producer_core.messages import encode_key
from producer_core.producer.components import Components


class DeadLetterApi:
    """Implements `resend` and `dead_letter` of `ReliableKafkaProducer`, which documents them."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def resend(self, dead_letter: DeadLetter | ReplayRecord, settled: Callable[[ReplayResult], None]) -> None:
        delivery = delivery_of(dead_letter)
        if (sequence := self._components.session.ids.number(delivery.id)) is not None:
            delivery.seq = sequence
        delivery.accepted_at = dead_letter.accepted_at
        delivery.callbacks = Callbacks(on_replayed=settled)
        self._components.enqueuer.resend(delivery)

    def add_malformed(
        self, topic: str, raw: bytes | None, *, code: str, text: str, source: str | None, key: Any
    ) -> str:
        components = self._components
        message_id = components.session.next_id()
        dead_letter = from_malformed_input(
            message_id, topic, producer=components.info, key=encode_key(key), raw=raw, code=code, text=text,
            source=source, now=components.now(),
        )  # fmt: skip
        for hook in (components.metrics, components.dead_letter_backend.hook):
            hook.died(dead_letter)
        return message_id

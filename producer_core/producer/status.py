"""Answer a producer's status queries: identity, messages, statistics and health. Read-only, from any thread."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from producer_core._internal.user_callbacks import short_repr
from producer_core.delivery.reports import as_message
from producer_core.errors import ConfigError
from producer_core.messages import Message, MessageStatus, parse_id
from producer_core.producer.components import Components

if TYPE_CHECKING:
    from producer_core.delivery.flow_control.circuits import CircuitReport
    from producer_core.producer.dead_letter_backend import DeadLetterBackend


class ProducerStatus:
    """Implements the status methods of `ReliableKafkaProducer`, which documents them."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._engine = components.engine
        self.started_at = components.started_at
        self.metrics = components.metrics
        self.deduplicator = components.deduplicator
        self.retry_manager = components.engine.retry_manager
        self.rate_limiter = components.rate_limiter

    @property
    def _backend(self) -> DeadLetterBackend:
        return self._components.dead_letter_backend

    @property
    def dlq(self) -> Any:
        return self._backend.queue

    @property
    def elapsed(self) -> float:
        return self._components.elapsed()

    @property
    def pending_count(self) -> int:
        return self._engine.waiting

    @property
    def circuits(self) -> CircuitReport | None:
        circuits = self._components.circuits
        return None if circuits is None else circuits.report()

    @property
    def core(self) -> str:
        """The core that sends plain messages: python or native."""
        return str(getattr(self._engine.transport, "core", "python"))

    @property
    def core_refusal(self) -> str | None:
        """Why the native core, which was asked for, cannot be used."""
        refusal: str | None = getattr(self._engine.transport, "core_refusal", None)
        return refusal

    def use_core(self, core: str) -> None:
        if core not in ("python", "native"):
            raise ConfigError(f"core={short_repr(core)} is not a known value.", fix="Use python or native.")
        transport = self._engine.transport
        if hasattr(transport, "use_core") and self.core_refusal is None:
            transport.use_core(core)
        elif core == "native":
            raise ConfigError(
                f"This producer cannot use the native core. {self.core_refusal or ''}".rstrip(),
                fix='Create it with delivery="exactly_once", core="native". producer-core doctor checks the core.',
            )

    def pending_by_topic(self) -> Counter[str]:
        return self._engine.pending_by_topic()

    def pending_messages(self) -> list[Message]:
        return [as_message(delivery, delivery.status) for delivery in list(self._engine.pending.values())]

    def message_status(self, message_id: str) -> MessageStatus | None:
        try:
            raw = parse_id(message_id)
        except (ValueError, AttributeError, TypeError):  # not an id, or not text
            return None
        pending = self._engine.pending.get(raw)
        if pending is not None:
            return pending.status
        if raw in self._engine.settlement.duplicates:
            return MessageStatus.DUPLICATE
        return self._settled_status(message_id, self._own_sequence(raw))

    def _own_sequence(self, raw: bytes) -> int | None:
        """Return the sequence of an id that this session has assigned; None for any other id."""
        session = self._components.session
        sequence = session.ids.number(raw)
        return None if sequence is None or sequence >= session.sequence.peek() else sequence

    def _settled_status(self, message_id: str, sequence: int | None) -> MessageStatus | None:
        pending_log = self._engine.pending_log
        if sequence is not None and pending_log is not None and pending_log.holds(sequence):
            return MessageStatus.PENDING
        state = self._backend.state(message_id)
        if state == "unknown":
            return None
        if state is not None:
            return MessageStatus.SENT if state in ("replayed", "landed") else MessageStatus.DLQ
        if sequence is None or sequence > self._engine.settlement.highest:
            return None
        return MessageStatus.SENT

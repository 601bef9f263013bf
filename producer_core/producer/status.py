"""The observed: what a producer tells of itself, counts, states and health. It reads only, from any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from producer_core.alerts import ReportedAlerts
from producer_core.alerts.health import HealthMonitor
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.engine import DeliveryEngine
from producer_core.delivery.reports import as_message
from producer_core.delivery.retry import RetryManager
from producer_core.messages import Message, MessageStatus, parse_id
from producer_core.metrics.counters import Metrics
from producer_core.producer.components import Components
from producer_core.producer.stats import BasicStats, ProducerStats, ReadOnlyStats, basic_stats, producer_stats

if TYPE_CHECKING:
    from producer_core.producer.dead_letter_backend import DeadLetterBackend
    from producer_core.producer.monitor import Monitor
    from producer_core.store import Store


class ProducerStatus:
    """A face of `ReliableKafkaProducer`, which makes what stands here first."""

    started_at: float
    metrics: Metrics
    deduplicator: MessageDeduplicator | None
    health_monitor: HealthMonitor
    alerts: ReportedAlerts
    retry_manager: RetryManager
    _parts: Components
    _lifecycle: DeliveryEngine
    _keeping: DeadLetterBackend
    _clock: Callable[[], float]
    _monitor: Monitor | None

    # who

    @property
    def identity(self) -> str:
        return str(self._parts.identity.session)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, asked from the brokers once connected (it may block for 2 s); empty until then."""
        return self._parts.cluster()

    @property
    def connection(self) -> ConnectionState:
        return self._lifecycle.connection

    @property
    def store(self) -> Store | None:
        return self._keeping.store

    @property
    def dlq(self) -> Any:
        """The dead letters: over the store, or in memory without one."""
        return self._keeping.letterbox

    @property
    def elapsed(self) -> float:
        """Seconds since the producer was made."""
        return self._clock() - self.started_at

    # messages

    @property
    def pending_count(self) -> int:
        """Messages accepted and not settled."""
        return self._lifecycle.waiting

    def pending_by_topic(self) -> Counter[str]:
        return self._lifecycle.pending_by_topic()

    @property
    def pending_messages(self) -> dict[str, Message]:
        return {message.id: message for message in self.get_pending_messages()}

    def get_pending_messages(self) -> list[Message]:
        return [as_message(delivery, delivery.status) for delivery in list(self._lifecycle.pending.values())]

    def get_message_status(self, message_id: str) -> MessageStatus | None:
        """Where a message of this producer stands; None for an id that is not ours."""
        try:
            raw = parse_id(message_id)
        except (ValueError, AttributeError, TypeError):  # no text at all
            return None
        pending = self._lifecycle.pending.get(raw)
        if pending is not None:
            return pending.status
        if raw in self._lifecycle.settlement.duplicates:
            return MessageStatus.DUPLICATE
        identity, backlog = self._parts.identity, self._lifecycle.backlog
        number = identity.ids.number(raw)
        if number is not None and number >= identity.sequence.peek():
            number = None
        if number is not None and backlog is not None and backlog.holds(number):
            return MessageStatus.PENDING
        state = self._keeping.state(message_id)
        if state is not None:
            return MessageStatus.SENT if state in ("replayed", "landed") else MessageStatus.DLQ
        if number is None or number > self._lifecycle.settlement.highest:
            return None
        return MessageStatus.SENT

    # numbers

    @property
    def stats(self) -> ProducerStats:
        """`get_stats()` for reading: a write raises, because it would change nothing."""
        return ReadOnlyStats(self.get_stats())

    def get_stats(self) -> ProducerStats:
        return producer_stats(self)

    def get_basic_stats(self) -> BasicStats:
        return basic_stats(self)

    def get_health_status(self) -> dict[str, Any]:
        return self.health_monitor.get_health_summary()

    def add_health_alert_callback(self, callback: Callable[[dict[str, Any]], None]) -> None:
        self.health_monitor.add_alert_callback(callback)

    def monitor(self) -> Monitor:
        """The live monitor for notebooks and terminals: one for this producer, also where a cell runs twice."""
        from producer_core.producer.monitor import Monitor

        self._keeping.hurry()
        if self._monitor is None:
            self._monitor = Monitor(self)
        return self._monitor

"""Hold the checked options of a producer in one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core.alerts import Route
from producer_core.config import ClientConfig, RetryConfig
from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker
from producer_core.delivery.transport import TransportFactory
from producer_core.events import Hook
from producer_core.producer.guarantees import Guarantees
from producer_core.producer.severe_errors import OnSevereErrors

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from producer_core.delivery.replayable_source import ReplayableSource
    from producer_core.dlq.topics.dead_letter_topic import DeadLetterTopic
    from producer_core.dlq.topics.publisher import OpenProducer
    from producer_core.producer.dead_letter_topic.publishing_client import PublishingClient
    from producer_core.store import Store


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """The keywords of `ReliableKafkaProducer`, with the same names where they are passed on unchanged."""

    guarantees: Guarantees
    client: ClientConfig
    retry: RetryConfig
    journal: ReplayableSource | None
    enable_deduplication: bool
    redis_client: Any
    dedup_ttl: int
    health_check_interval: float
    thresholds: Mapping[str, float]
    store: Store | Path | str | None
    dlq_max_size: int
    telemetry_topic: str | None
    ledger: bool | None
    alert_routes: Sequence[Route]
    cluster_id: str | None
    hooks: Sequence[Hook]
    transport: TransportFactory | None
    clock: Callable[[], float]
    tracing: bool | TracerProvider = False
    circuit_breaker: CircuitBreaker | None = None
    on_severe_errors: OnSevereErrors = "continue"
    application: str = ""
    application_version: str = ""
    dead_letter_topic: DeadLetterTopic | None = None
    open_producer: OpenProducer | None = None
    """Opens a producer without a store, which publishes dead letters."""

    def publishing_client(self) -> PublishingClient | None:
        """Return the client that publishes dead letters; None without a dead-letter topic."""
        if self.dead_letter_topic is None or self.open_producer is None:
            return None
        from producer_core.producer.dead_letter_topic.publishing_client import PublishingClient

        return PublishingClient(
            self.dead_letter_topic, self.client, self.open_producer, has_broker=self.has_broker
        )

    @property
    def has_broker(self) -> bool:
        """Whether the transport reaches a Kafka cluster. A custom transport may not."""
        return self.transport is None

    @property
    def acknowledges(self) -> bool:
        """Whether brokers acknowledge messages. With acks=0 they do not."""
        return str(self.client.settings.get("acks")) != "0"

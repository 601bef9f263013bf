"""A reliable Kafka producer that accounts for every message.

    from producer_core import ReliableKafkaProducer

Public names are imported on first use, so that `import producer_core` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the names that __getattr__ resolves, for type checkers and editors
    from producer_core.alerts.health import HealthMonitor as HealthMonitor
    from producer_core.alerts.health import default_alert_handler as default_alert_handler
    from producer_core.config import ClientConfig as ClientConfig
    from producer_core.config import RetryConfig as RetryConfig
    from producer_core.delivery.dedup.deduplicator import MessageDeduplicator as MessageDeduplicator
    from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker as CircuitBreaker
    from producer_core.delivery.reports import CloseReport as CloseReport
    from producer_core.delivery.reports import DeliveryReport as DeliveryReport
    from producer_core.delivery.retry import RetryManager as RetryManager
    from producer_core.dlq import DeadLetterFilter as DeadLetterFilter
    from producer_core.dlq import DeadLetterQueue as DeadLetterQueue
    from producer_core.dlq.topics.dead_letter_topic import DeadLetterTopic as DeadLetterTopic
    from producer_core.errors import BrokerError as BrokerError
    from producer_core.errors import CircuitOpen as CircuitOpen
    from producer_core.errors import ConfigError as ConfigError
    from producer_core.errors import DeliveryFailed as DeliveryFailed
    from producer_core.errors import Fenced as Fenced
    from producer_core.errors import ForkedProducer as ForkedProducer
    from producer_core.errors import InvalidMessage as InvalidMessage
    from producer_core.errors import JournalError as JournalError
    from producer_core.errors import NotAccepted as NotAccepted
    from producer_core.errors import ProducerClosed as ProducerClosed
    from producer_core.errors import ProducerError as ProducerError
    from producer_core.errors import QueueFull as QueueFull
    from producer_core.errors import RateLimited as RateLimited
    from producer_core.errors import ReplayError as ReplayError
    from producer_core.errors import SchemaUnavailable as SchemaUnavailable
    from producer_core.errors import StoreError as StoreError
    from producer_core.errors import TokenUnavailable as TokenUnavailable
    from producer_core.events import Acknowledged as Acknowledged
    from producer_core.events import DeadLetter as DeadLetter
    from producer_core.events import Hook as Hook
    from producer_core.kafka.duplicate_filter import Seen as Seen
    from producer_core.kafka.duplicate_filter import unique as unique
    from producer_core.messages import Message as Message
    from producer_core.messages import MessageStatus as MessageStatus
    from producer_core.producer.monitor import Monitor as Monitor
    from producer_core.producer.producer import ReliableKafkaProducer as ReliableKafkaProducer
    from producer_core.producer.send_batch import BatchEntry as BatchEntry
    from producer_core.producer.send_batch import BatchReport as BatchReport
    from producer_core.producer.upstream_offsets import UpstreamOffsets as UpstreamOffsets
    from producer_core.producer.upstream_offsets import in_order as in_order
    from producer_core.simulate.config import DataGenerationConfig as DataGenerationConfig
    from producer_core.simulate.generator import ECommerceDataGenerator as ECommerceDataGenerator
    from producer_core.simulate.orchestrator import DataGenerationOrchestrator as DataGenerationOrchestrator
    from producer_core.simulate.patterns import FraudPatterns as FraudPatterns
    from producer_core.simulate.patterns import FraudType as FraudType
    from producer_core.simulate.patterns import GeographicLocation as GeographicLocation
    from producer_core.simulate.patterns import GeographicPatterns as GeographicPatterns
    from producer_core.simulate.patterns import SeasonalPatterns as SeasonalPatterns
    from producer_core.simulate.patterns import TemporalContext as TemporalContext
    from producer_core.simulate.patterns import TemporalPatterns as TemporalPatterns
    from producer_core.simulate.streaming import KafkaDataProducer as KafkaDataProducer
    from producer_core.store import Store as Store

__version__ = "0.1.0"

_MODULES = {
    "Acknowledged": "events",
    "BatchEntry": "producer.send_batch",
    "BatchReport": "producer.send_batch",
    "BrokerError": "errors",
    "CircuitBreaker": "delivery.flow_control.circuit_breaker",
    "CircuitOpen": "errors",
    "ClientConfig": "config",
    "CloseReport": "delivery.reports",
    "ConfigError": "errors",
    "DataGenerationConfig": "simulate.config",
    "DataGenerationOrchestrator": "simulate.orchestrator",
    "DeadLetter": "events",
    "DeadLetterFilter": "dlq",
    "DeadLetterQueue": "dlq",
    "DeadLetterTopic": "dlq.topics.dead_letter_topic",
    "DeliveryFailed": "errors",
    "DeliveryReport": "delivery.reports",
    "ECommerceDataGenerator": "simulate.generator",
    "Fenced": "errors",
    "ForkedProducer": "errors",
    "FraudPatterns": "simulate.patterns",
    "FraudType": "simulate.patterns",
    "GeographicLocation": "simulate.patterns",
    "GeographicPatterns": "simulate.patterns",
    "HealthMonitor": "alerts.health",
    "Hook": "events",
    "InvalidMessage": "errors",
    "JournalError": "errors",
    "KafkaDataProducer": "simulate.streaming",
    "Message": "messages",
    "MessageDeduplicator": "delivery.dedup.deduplicator",
    "MessageStatus": "messages",
    "Monitor": "producer.monitor",
    "NotAccepted": "errors",
    "ProducerClosed": "errors",
    "ProducerError": "errors",
    "QueueFull": "errors",
    "RateLimited": "errors",
    "ReliableKafkaProducer": "producer.producer",
    "ReplayError": "errors",
    "RetryConfig": "config",
    "RetryManager": "delivery.retry",
    "SchemaUnavailable": "errors",
    "SeasonalPatterns": "simulate.patterns",
    "Seen": "kafka.duplicate_filter",
    "Store": "store",
    "StoreError": "errors",
    "TemporalContext": "simulate.patterns",
    "TemporalPatterns": "simulate.patterns",
    "TokenUnavailable": "errors",
    "UpstreamOffsets": "producer.upstream_offsets",
    "default_alert_handler": "alerts.health",
    "in_order": "producer.upstream_offsets",
    "unique": "kafka.duplicate_filter",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """Load the magics and the widget for `%load_ext producer_core`, through the dashboard's entry point."""
    from producer_core._internal.dashboard_entry import load_dashboard

    load_dashboard("extension")(shell)

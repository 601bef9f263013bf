"""A reliable Kafka producer that tells its owner what happened to every message.

    from producer_core import ReliableKafkaProducer

Public names are loaded when they are first used, so that the import costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Acknowledged": "events",
    "ClientConfig": "config",
    "DataGenerationConfig": "simulate.config",
    "DataGenerationOrchestrator": "simulate.orchestrator",
    "DeadLetter": "events",
    "DeadLetterFilter": "dlq",
    "DeadLetterQueue": "dlq",
    "ECommerceDataGenerator": "simulate.generator",
    "FraudPatterns": "simulate.patterns",
    "FraudType": "simulate.patterns",
    "GeographicLocation": "simulate.patterns",
    "GeographicPatterns": "simulate.patterns",
    "HealthMonitor": "health",
    "Hook": "events",
    "KafkaDataProducer": "simulate.streaming",
    "Message": "messages",
    "MessageDeduplicator": "dedup",
    "MessageStatus": "messages",
    "Monitor": "monitor",
    "ProducerError": "errors",
    "ReliableKafkaProducer": "producer",
    "RetryConfig": "config",
    "RetryManager": "retry",
    "SeasonalPatterns": "simulate.patterns",
    "Store": "store",
    "TemporalContext": "simulate.patterns",
    "TemporalPatterns": "simulate.patterns",
    "default_alert_handler": "health",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext producer_core`: the magics and the widget, found through the entry point."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="producer_core.notebook", name="extension"):
        entry.load()(shell)

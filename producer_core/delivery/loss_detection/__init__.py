"""Detect loss: check whether the log still has the records that the broker acknowledged."""

from producer_core.delivery.loss_detection.broker_queries import (
    BrokerQueries,
    KafkaBrokerQueries,
    RecordQuery,
)
from producer_core.delivery.loss_detection.evidence import (
    BrokerView,
    Case,
    Checkpoint,
    Evidence,
    LossFinding,
    Trigger,
    classify,
)
from producer_core.delivery.loss_detection.monitor import AckedLogMonitor

__all__ = [
    "AckedLogMonitor",
    "BrokerQueries",
    "BrokerView",
    "Case",
    "Checkpoint",
    "Evidence",
    "KafkaBrokerQueries",
    "LossFinding",
    "RecordQuery",
    "Trigger",
    "classify",
]

"""Store producers' statistics, dead letters, replays and alerts in one DuckDB file that many processes share."""

from producer_core.metrics.batch import (
    Batch,
    BrokerRow,
    ClientRow,
    ErrorRow,
    LatencyRow,
    ProducerRow,
    StatisticsRow,
)
from producer_core.store.inspect import StoreInfo
from producer_core.store.paths import default_path
from producer_core.store.retention import Retention
from producer_core.store.store import Store

__all__ = [
    "Batch",
    "BrokerRow",
    "ClientRow",
    "ErrorRow",
    "LatencyRow",
    "ProducerRow",
    "Retention",
    "StatisticsRow",
    "Store",
    "StoreInfo",
    "default_path",
]

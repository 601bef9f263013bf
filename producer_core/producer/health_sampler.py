"""Sample a producer's state for the health monitor."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from producer_core.alerts.health import memory_usage
from producer_core.delivery.engine import DeliveryEngine
from producer_core.metrics.counters import Metrics, Snapshot


class HealthSampler:
    """Computes rates over the time since the last sample, so that an alert describes the present."""

    def __init__(
        self,
        metrics: Metrics,
        engine: DeliveryEngine,
        dlq_size: Callable[[], int],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._engine = engine
        self._dlq_size = dlq_size
        self._clock = clock
        self._last = Snapshot({}, {}, ())
        self._last_at = clock()

    def sample(self) -> dict[str, Any]:
        """Return one health sample with the public keys. Called by the health monitor's thread."""
        now, after, before = self._clock(), self._metrics.snapshot(), self._last
        elapsed = max(now - self._last_at, 1e-9)
        acknowledged = after.acknowledged - before.acknowledged
        dead = after.dead - before.dead
        latency = after.total("latency_sum") - before.total("latency_sum")
        used, limit = memory_usage()
        self._last, self._last_at = after, now
        return {
            "timestamp": datetime.fromtimestamp(now).isoformat(),
            "producer_connected": self._engine.connection.connected,
            "pending_messages": self._engine.waiting,
            "acknowledged_messages": acknowledged,
            "dead_messages": dead,
            "error_rate": dead / (acknowledged + dead) if acknowledged + dead else 0.0,
            "dlq_size": self._dlq_size(),
            "avg_latency_ms": 1000 * latency / acknowledged if acknowledged else 0.0,
            "messages_per_second": acknowledged / elapsed,
            "bytes_per_second": (after.total("bytes") - before.total("bytes")) / elapsed,
            "memory_usage": used / limit if limit else 0.0,
        }

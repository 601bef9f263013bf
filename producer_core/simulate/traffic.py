"""The shop's traffic: its topics, their current rates, and their next records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from producer_core.simulate.generator import ECommerceDataGenerator
from producer_core.simulate.purchases import fraud_alert
from producer_core.simulate.times import TemporalContext

Record = dict[str, Any]

_BURST_HOURS = (10, 11, 19, 20, 21)


@dataclass(frozen=True)
class TopicTraffic:
    """A topic's key, its average messages per hour, and the factor of a burst hour."""

    key: Callable[[Record], str]
    per_hour: float
    burst: float


TOPICS: Mapping[str, TopicTraffic] = {
    "transactions": TopicTraffic(lambda record: str(record["user_id"]), 10_000, 1.5),
    "user-events": TopicTraffic(lambda record: str(record["session_id"]), 100_000, 2.0),
    "product-updates": TopicTraffic(lambda record: str(record["product_id"]), 1000, 1.2),
    "fraud-alerts": TopicTraffic(lambda record: str(record["transaction_id"]), 100, 3.0),
    "analytics-results": TopicTraffic(lambda record: str(record.get("metric_type") or "general"), 500, 1.0),
}


def rate_now(traffic: TopicTraffic, context: TemporalContext, multiplier: float) -> float:
    """Return messages per second: the average times hour, season and burst, at least a tenth of the average."""
    hourly = traffic.per_hour * multiplier
    burst = traffic.burst if context.hour in _BURST_HOURS else 1.0
    busy = hourly * context.business_hour_multiplier * context.seasonal_multiplier * burst
    return max(busy, 0.1 * hourly) / 3600


class TrafficSource:
    """Generates the next record of a topic. Fraud alerts refer to purchases that were generated before.

    With `purchases=False` no purchases are generated: alerts then refer to purchases made only for them.
    """

    def __init__(self, generator: ECommerceDataGenerator, *, purchases: bool = True) -> None:
        self._generator = generator
        self._purchases = purchases
        self._frauds: deque[Record] = deque(maxlen=1000)
        self._made: dict[str, Callable[[datetime | None], Record | None]] = {
            "transactions": self._transaction,
            "user-events": generator.user_event,
            "product-updates": generator.product_update,
            "fraud-alerts": self._fraud_alert,
            "analytics-results": generator.analytics_result,
        }

    def next(self, topic: str, at: datetime | None = None) -> Record | None:
        """Return a record, or None when there is none now (no fraud since the last alert)."""
        return self._made[topic](at)

    def _transaction(self, at: datetime | None) -> Record:
        record = self._generator.transaction(at)
        if record["is_fraud"]:
            self._frauds.append(record)
        return record

    def _fraud_alert(self, at: datetime | None) -> Record | None:
        if self._frauds:
            return fraud_alert(self._frauds.popleft())
        return None if self._purchases else fraud_alert(self._generator.transaction(at, fraud=True))

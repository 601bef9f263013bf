"""Compute the current messages per second of each topic."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from producer_core.simulate.generator import ECommerceDataGenerator
from producer_core.simulate.traffic import TOPICS, rate_now


class Rates:
    """Rates from the shop's clock, or a total that is shared in proportion to the averages."""

    def __init__(
        self,
        generator: ECommerceDataGenerator,
        topics: Iterable[str],
        *,
        multiplier: float = 1.0,
        total: float | None = None,
    ) -> None:
        self._temporal = generator.temporal_patterns
        self._multiplier = multiplier
        self._total = total
        self._hourly = sum(TOPICS[topic].per_hour for topic in topics)

    def of(self, topic: str) -> float:
        if self._total is not None:
            return self._total * TOPICS[topic].per_hour / self._hourly
        context = self._temporal.get_temporal_context(datetime.now())
        return rate_now(TOPICS[topic], context, self._multiplier)

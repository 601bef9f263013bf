"""Write a day of a shop's history to a store: the statistics of yesterday's producers, with one outage six hours ago."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Iterator

from producer_core.metrics.batch import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow
from producer_core.metrics.histogram import bucket_of
from producer_core.store import Store

CLUSTER = "shop"
HOUR = 3600
RATES = {
    "user-events": 200.0,
    "transactions": 52.0,
    "product-updates": 23.0,
    "payments": 8.0,
    "audit-log": 0.5,
}
"""Messages per second of each topic."""
MIDDLE, WIDTH = bucket_of(0.005), 10
"""The bucket of the usual latency, and its spread in buckets."""


def write(store: Store, *, now: float) -> None:
    """Write the last 20 minutes in ten-second windows, and the day before in five-minute windows, by a closed producer."""
    dice, producer = random.Random(7), str(uuid.uuid5(uuid.NAMESPACE_DNS, CLUSTER))
    for sequence, (some, width, resolution) in enumerate(_windows(int(now))):
        statistics: list[StatisticsRow] = []
        latencies: list[LatencyRow] = []
        errors: list[ErrorRow] = []
        for start in some:
            for topic, rate in RATES.items():
                count = round(rate * width * _wave(start) * dice.uniform(0.9, 1.1))
                dead = round(count * _outage(topic, now - start))
                statistics.append(_counts(producer, start, topic, count, dead))
                latencies += _spread(producer, start, topic, count - dead, every=1 if resolution == 1 else 6)
                if dead:
                    errors.append(
                        ErrorRow(start, CLUSTER, producer, topic, "NOT_ENOUGH_REPLICAS", "retriable", dead)
                    )
        store.append(
            Batch(
                producer, sequence, tuple(statistics), tuple(latencies), tuple(errors),
                producer=_producer(producer, now), resolution=resolution,
            )
        )  # fmt: skip


def _windows(now: int) -> Iterator[tuple[list[int], int, int]]:
    """Yield the starts of the windows of one batch, the seconds that each covers, and the resolution of the store."""
    fine = now - 1200
    for first in range(now - 24 * HOUR, fine, 4 * HOUR):
        yield [start // 60 * 60 for start in range(first, min(first + 4 * HOUR, fine), 300)], 300, 60
    yield list(range(fine // 10 * 10, now, 10)), 10, 1


def _wave(start: int) -> float:
    """Return the share of the traffic at this hour; it is lower at night."""
    return 0.8 + 0.2 * math.sin(start / 86_400 * 2 * math.pi)


def _outage(topic: str, age: float) -> float:
    return 0.04 if topic in ("transactions", "payments") and 6 * HOUR < age < 6.4 * HOUR else 0.0


def _counts(producer: str, start: int, topic: str, count: int, dead: int) -> StatisticsRow:
    return StatisticsRow(
        start, CLUSTER, producer, topic, count, count - dead, dead, dead, 0, 0, 0, 0, count * 240, count * 0.006
    )  # fmt: skip


def _spread(producer: str, start: int, topic: str, count: int, *, every: int) -> Iterator[LatencyRow]:
    """Return a bell curve over the logarithmic buckets with a longer tail on the slow side, with gaps between the buckets."""
    buckets = range(MIDDLE - 2 * WIDTH, MIDDLE + 6 * WIDTH, every)
    weights = [_weight((bucket - MIDDLE) / WIDTH) for bucket in buckets]
    for bucket, weight in zip(buckets, weights, strict=True):
        if part := round(count * weight / sum(weights)):
            yield LatencyRow(start, CLUSTER, producer, topic, bucket, part)


def _weight(away: float) -> float:
    return math.exp(-(away**2) / 2) + (0.02 * math.exp(-away) if away > 0 else 0.0)


def _producer(producer: str, now: float) -> ProducerRow:
    return ProducerRow(
        producer, CLUSTER, "checkout-0", "shop-1", 4711, "0.1.0", now - 24 * HOUR, now - 70, now - 70, True, None,
        0, 0, 0, 100_000, 190 << 20, 2 << 30, False, "idempotent", "{}",
    )  # fmt: skip

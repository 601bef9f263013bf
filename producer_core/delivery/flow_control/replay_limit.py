"""The share of a producer's rate limits that a replay in transactions takes. Such a replay has a client of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from producer_core.delivery.record_batch import RecordBatch

if TYPE_CHECKING:
    from producer_core.delivery.dead_letter import ReplayRecord
    from producer_core.delivery.flow_control.rate_limiter import RateLimiter

_ASSUMED_BYTES = 1_000_000.0
"""The mean size of records before the first ones are known: the first step then claims one record."""


class ReplayLimit:
    """The rate of a replay to these topics under the limits of the producer, and the tokens that it takes. For one thread.

    The lowest limit of the topics applies to all records of the replay.
    """

    def __init__(self, limiter: RateLimiter, topics: Sequence[str]) -> None:
        self._limiter = limiter
        self._topics = tuple(topics)
        self._mean_bytes = _ASSUMED_BYTES

    def rate(self) -> float | None:
        """Return records per second, or None without a limit. It is half of the limit while messages do not get tokens at
        once."""
        rates = (self._limiter.rate_of(topic, self._mean_bytes) for topic in self._topics)
        return min((rate for rate in rates if rate is not None), default=None)

    def most_bytes(self) -> int | None:
        """Return the bytes that the replay may claim at once, those of a second, or None without a limit."""
        limits = [limit for topic in self._topics if (limit := self._limiter.bytes_of(topic)) is not None]
        return max(1, int(min(limits))) if limits else None

    def charge(self, records: Sequence[ReplayRecord]) -> None:
        """Take the tokens of records that are sent at once. Later messages wait until they are made up for."""
        if not records:
            return
        sizes = _bytes_of(records) if self._limiter.counts_bytes else Counter[str]()
        for topic, count in _counts_of(records).items():
            self._limiter.charge_many(topic, count, sizes[topic])
        self._mean_bytes = max(1.0, sizes.total() / len(records))


def _counts_of(records: Sequence[ReplayRecord]) -> Counter[str]:
    if isinstance(records, RecordBatch) and len(records.topics) == 1:
        return Counter({next(iter(records.topics)): len(records)})
    return Counter(record.topic for record in records)


def _bytes_of(records: Sequence[ReplayRecord]) -> Counter[str]:
    """Return the bytes by topic. They count key, value and headers, as those of a message do."""
    sizes: Counter[str] = Counter()
    for record in records:
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        sizes[record.topic] += record.size + headers
    return sizes

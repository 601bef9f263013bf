"""Count latencies in logarithmic buckets, as a histogram that can be merged.

Bucket `i` holds latencies in (BASE ** (i - 1), BASE ** i] microseconds, with BASE = 2 ** (1/16). The value of a quantile is
the geometric middle of its bucket, which differs from the true quantile by a factor of 2 ** (1/32) at most: RELATIVE_ERROR is
2.2 %. A merge adds counts and keeps this bound, unlike an average of percentiles (see OpenTelemetry's exponential histogram,
scale 4).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

SCALE = 4
BASE = 2.0 ** (2.0**-SCALE)
RELATIVE_ERROR = BASE**0.5 - 1
_PER_LOG2 = 2**SCALE
_FEW = 8
"""Latencies up to which it takes longer to find the end of a bucket than to count one by one."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency in seconds; bucket 0 holds latencies of up to one microsecond."""
    micros = seconds * 1e6
    return math.ceil(math.log2(micros) * _PER_LOG2) if micros > 1 else 0


def upper_bound(bucket: int) -> float:
    """Return the highest latency of a bucket in seconds."""
    return float(BASE**bucket) / 1e6


def middle(bucket: int) -> float:
    """Return the latency in seconds that represents a bucket in a quantile."""
    return float(BASE ** (bucket - 0.5)) / 1e6 if bucket > 0 else 1e-6


class Histogram:
    """Counts latencies by bucket. Not thread-safe."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts or {})

    def add(self, latencies: Iterable[float]) -> None:
        """Count latencies given in seconds."""
        ordered, counts = sorted(latencies), self.counts
        if len(ordered) <= _FEW:
            for latency in ordered:
                bucket = bucket_of(latency)
                counts[bucket] = counts.get(bucket, 0) + 1
            return
        done = 0
        while done < len(ordered):  # one step for each bucket, not for each latency
            bucket = bucket_of(ordered[done])
            end = bisect_right(ordered, bucket, done, key=bucket_of)
            counts[bucket] = counts.get(bucket, 0) + end - done  # a Counter calls Python code for a new key
            done = end

    def merge(self, other: Histogram | Mapping[int, int]) -> None:
        self.counts.update(other.counts if isinstance(other, Histogram) else other)

    @property
    def total(self) -> int:
        return self.counts.total()

    def quantile(self, q: float) -> float | None:
        """Return the quantile `q` in seconds; None when the histogram is empty."""
        return quantiles(self.counts, (q,))[0]

    def copy(self) -> Histogram:
        return Histogram(self.counts)


def quantiles(counts: Mapping[int, int], qs: Iterable[float]) -> list[float | None]:
    """Return several quantiles of one histogram in seconds, each within RELATIVE_ERROR; None for an empty histogram."""
    requested = list(qs)
    total = sum(counts.values())
    if not total:
        return [None] * len(requested)
    buckets = sorted(counts)
    cumulative = list(accumulate(counts[bucket] for bucket in buckets))
    ranks = (min(total, max(1, math.ceil(q * total))) for q in requested)
    return [middle(buckets[bisect_left(cumulative, rank)]) for rank in ranks]

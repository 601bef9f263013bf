"""A latency histogram that can be merged: counts in logarithmic buckets.

Bucket `i` holds latencies in (BASE ** (i - 1), BASE ** i] microseconds, with BASE = 2 ** (1/16).
A quantile is answered with its bucket's geometric middle, so it is at most a factor
2 ** (1/32) away from the true one: RELATIVE_ERROR is 2.2 %. Merging adds counts, which keeps the
bound; averaging percentiles does not (see OpenTelemetry's exponential histogram, scale 4).
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


def bucket_of(seconds: float) -> int:
    """The bucket of a latency in seconds; at or below one microsecond everything is bucket 0."""
    micros = seconds * 1e6
    return math.ceil(math.log2(micros) * _PER_LOG2) if micros > 1 else 0


def upper_bound(bucket: int) -> float:
    """The highest latency, in seconds, that falls into the bucket."""
    return float(BASE**bucket) / 1e6


def middle(bucket: int) -> float:
    """The latency, in seconds, that stands for the bucket in a quantile."""
    return float(BASE ** (bucket - 0.5)) / 1e6 if bucket > 0 else 1e-6


class Histogram:
    """Counts by bucket. Not thread-safe: its owner guards it."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts or {})

    def add(self, latencies: Iterable[float]) -> None:
        """Count latencies given in seconds."""
        ordered = sorted(latencies)
        done = 0
        while done < len(ordered):  # a bucket's end is sought: fewer steps than one for each latency
            bucket = bucket_of(ordered[done])
            end = bisect_right(ordered, bucket, done, key=bucket_of)
            self.counts[bucket] += end - done
            done = end

    def merge(self, other: Histogram | Mapping[int, int]) -> None:
        self.counts.update(other.counts if isinstance(other, Histogram) else other)

    @property
    def total(self) -> int:
        return self.counts.total()

    def quantile(self, q: float) -> float | None:
        """The latency in seconds below which the share `q` lies; None when empty."""
        return quantiles(self.counts, (q,))[0]

    def copy(self) -> Histogram:
        return Histogram(self.counts)


def quantiles(counts: Mapping[int, int], qs: Iterable[float]) -> list[float | None]:
    """Several quantiles of one histogram, in seconds, each within RELATIVE_ERROR; None when it is empty."""
    wanted = list(qs)
    total = sum(counts.values())
    if not total:
        return [None] * len(wanted)
    buckets = sorted(counts)
    seen = list(accumulate(counts[bucket] for bucket in buckets))
    ranks = (min(total, max(1, math.ceil(q * total))) for q in wanted)
    return [middle(buckets[bisect_left(seen, rank)]) for rank in ranks]

"""Fold the buckets of `metrics.histogram` into the fourteen that OpenTelemetry recommends for durations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from producer_core.metrics.histogram import upper_bound

BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The upper bounds in seconds that the semantic conventions advise for `messaging.client.operation.duration`."""


def fold(counts: Mapping[int, int], boundaries: Sequence[float] = BOUNDARIES) -> list[int]:
    """Return the cumulative count up to each boundary, then the total.

    A bucket counts from the first boundary that is not below its upper bound. The result is exact where bounds coincide.
    Where a boundary lies inside a bucket, which is 4.4 % wide, the whole bucket counts from the next boundary: a
    latency never appears shorter than it was. Counts are added and nothing is averaged, so the result for several
    histograms is the sum of their results.
    """
    bounds = tuple(boundaries)
    folded = [0] * (len(boundaries) + 1)
    for bucket, count in counts.items():
        folded[_place(bucket, bounds)] += count
    return list(accumulate(folded))


@lru_cache(4096)
def _place(bucket: int, boundaries: tuple[float, ...]) -> int:
    return bisect_left(boundaries, upper_bound(bucket))

"""Sum the series of the overview over all topics, for the sparklines of its tiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from producer_core.dashboard.queries.topics import Point


@dataclass(frozen=True)
class Courses:
    """Holds one value a window, oldest first, with None where no data exists.

    `throughput` is in acknowledged messages per second, `error_rate` a share of settled messages, and `dead` counts
    failed messages. `percentiles` has the latencies of each window, in seconds, from its merged histogram.
    """

    throughput: tuple[float | None, ...]
    error_rate: tuple[float | None, ...]
    dead: tuple[int | None, ...]
    percentiles: tuple[tuple[float | None, ...] | None, ...]

    def percentile(self, place: int) -> tuple[float | None, ...]:
        """Return one percentile by its position among the quantiles of the page."""
        return tuple(None if found is None else found[place] for found in self.percentiles)


def courses(
    series: Sequence[Point],
    percentiles: Mapping[int, tuple[float | None, ...]],
    *,
    since: int,
    until: float,
    step: int,
) -> Courses:
    """Return the courses of the complete windows; the current window is left out, because it would show as a dip."""
    acknowledged, dead, seconds = defaultdict[int, int](int), defaultdict[int, int](int), dict[int, int]()
    for point in series:
        acknowledged[point.at] += point.acknowledged
        dead[point.at] += point.dead
        seconds[point.at] = max(seconds.get(point.at, 1), point.seconds)
    windows = range(since, int(until) // step * step, step)
    return Courses(
        throughput=tuple(acknowledged[at] / seconds[at] if at in seconds else None for at in windows),
        error_rate=tuple(_share(dead[at], acknowledged[at]) for at in windows),
        dead=tuple(dead[at] if at in seconds else None for at in windows),
        percentiles=tuple(percentiles.get(at) for at in windows),
    )


def _share(dead: int, acknowledged: int) -> float | None:
    return dead / (dead + acknowledged) if dead + acknowledged else None

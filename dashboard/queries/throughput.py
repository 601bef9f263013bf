"""Define the time over which every page measures the throughput."""

from __future__ import annotations

from typing import NamedTuple

from producer_core.dashboard.queries.view import View

MINUTE = 60
LAG = 2
"""Seconds until a producer's counts are in the store."""


class ThroughputSpan(NamedTuple):
    """Holds the beginning and the end, in seconds since 1970; the throughput is the acknowledged messages per second."""

    since: int
    until: int

    @property
    def seconds(self) -> int:
        return self.until - self.since


def throughput_span(view: View, now: float) -> ThroughputSpan:
    """Return the last minute whose counts are in the store, or a range that is shorter; a range that has ended is whole."""
    if view.over(now):
        return ThroughputSpan(view.since(now), max(view.since(now) + 1, int(view.at(now))))
    until = int(now) - LAG
    return ThroughputSpan(until - min(MINUTE, view.seconds), until)

"""A topic in a line of the overview: how it goes, how it went, and what is wrong with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.words import Cause
from producer_core.histogram import quantiles

BARS = 50
"""About how many places a sparkline has."""
_BAD = 0.05
_MINUTE = 60


@dataclass(frozen=True)
class Point:
    """One window of one topic: counts, and the seconds it covers."""

    at: int
    seconds: int
    topic: str
    acknowledged: int
    dead: int
    bytes: int


@dataclass(frozen=True)
class TopicRow:
    """`rates` (acknowledged a second) and `failures` over the range, oldest first; None where nothing was written.

    `failing` is the share of the last minute that died. `trouble` is 3 where much fails now or did, 2 where something does, 1 where dead letters wait from before, else 0.
    """

    topic: str
    acknowledged: int
    dead: int
    throughput: float
    failing: float | None
    p99: float | None
    waiting: int
    rates: tuple[float | None, ...]
    failures: tuple[int | None, ...]
    cause: Cause | None
    causes: int

    @property
    def error_rate(self) -> float | None:
        settled = self.acknowledged + self.dead
        return self.dead / settled if settled else None

    @property
    def trouble(self) -> int:
        if self.dead:
            return 3 if max(self.error_rate or 0.0, self.failing or 0.0) > _BAD else 2
        return 1 if self.waiting else 0


def topic_rows(
    series: Sequence[Point],
    buckets: Sequence[Mapping[str, Any]],
    causes: Sequence[Cause],
    waiting: Mapping[str, int],
    since: int,
    step: int,
    now: float,
    only: str | None,
) -> tuple[TopicRow, ...]:
    """Every topic that was written to in the range, or of which dead letters wait; the most troubled first."""
    points, histograms = _by_topic(series), defaultdict[str, dict[int, int]](dict)
    for row in buckets:
        histograms[row["topic"]][row["bucket"]] = row["count"]
    names = {name for name in {*points, *waiting} if only in (None, name)}
    width = _width(since, step, now)
    rows = [
        _row(name, points[name], histograms[name], causes, waiting.get(name, 0), since, width, now)
        for name in names
    ]
    return tuple(sorted(rows, key=_place))


def _place(row: TopicRow) -> tuple[int, int, int, str]:
    """By trouble, then by the order of magnitude, then by name: lines that fail alike do not change places each second."""
    return -row.trouble, -len(str(row.dead or row.waiting)), -len(str(row.acknowledged)), row.topic


def _by_topic(series: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = defaultdict(list)
    for point in series:
        found[point.topic].append(point)
    return found


def _row(
    topic: str,
    points: Sequence[Point],
    histogram: Mapping[int, int],
    causes: Sequence[Cause],
    waiting: int,
    since: int,
    width: int,
    now: float,
) -> TopicRow:
    own = [cause for cause in causes if cause.topic == topic]
    rates, failures = _lines(points, since, width, now)
    throughput, failing = _lately(points, now)
    return TopicRow(
        topic=topic,
        acknowledged=sum(point.acknowledged for point in points),
        dead=sum(point.dead for point in points),
        throughput=throughput,
        failing=failing,
        p99=next(iter(quantiles(histogram, (0.99,))), None),
        waiting=waiting,
        rates=rates,
        failures=failures,
        cause=own[0] if own else None,
        causes=len(own),
    )


def _lately(points: Sequence[Point], now: float) -> tuple[float, float | None]:
    """Acknowledged a second, and the share that died, over the last minute or the last windows that cover one."""
    last = [point for point in points if point.at + point.seconds > now - _MINUTE]
    seconds = now - min((point.at for point in last), default=now)
    acknowledged, dead = sum(point.acknowledged for point in last), sum(point.dead for point in last)
    return acknowledged / max(seconds, _MINUTE), dead / (acknowledged + dead) if dead else None


def _width(since: int, step: int, now: float) -> int:
    """Seconds a place of a sparkline stands for: whole windows."""
    windows = max(1, -(-int(now - since) // step))
    return step * -(-windows // BARS)


def _lines(
    points: Sequence[Point], since: int, width: int, now: float
) -> tuple[tuple[float | None, ...], tuple[int | None, ...]]:
    places = max(1, -(-int(now - since) // width))
    acknowledged, dead, written = [0] * places, [0] * places, [0] * places
    for point in points:
        place = min((point.at - since) // width, places - 1)
        if place >= 0:
            acknowledged[place] += point.acknowledged
            dead[place] += point.dead
            written[place] = max(written[place], point.seconds)
    seconds = [max(1.0, min(width, now - (since + place * width))) for place in range(places)]
    rates = tuple(
        count / max(length, known if known > width else length) if known else None
        for count, length, known in zip(acknowledged, seconds, written, strict=True)
    )
    return rates, tuple(count if known else None for count, known in zip(dead, written, strict=True))

"""A topic in a line of the overview: how it goes, how it went, and what is wrong with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.deaths import Deaths
from producer_core.dashboard.queries.view import View
from producer_core.metrics.histogram import quantiles
from producer_core.replay.active_cause import is_over

BARS = 50
"""About how many places a sparkline has."""
_BAD = 0.05


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

    `failing` is the share of the last minute that died, where that is not cured yet; of a range that is over, of all of
    it. `trouble` is 3 where much fails now, 2 where something does, 1 where dead letters wait, else 0. `cured` died in
    the range and were replayed since; `left` neither that nor put aside. `delivered` were acknowledged since the last
    death, and `recovered` says that they are so many that the fault is over.
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
    cured: int = 0
    left: int = 0
    delivered: int = 0
    recovered: bool = False

    @property
    def error_rate(self) -> float | None:
        settled = self.acknowledged + self.dead
        return self.dead / settled if settled else None

    @property
    def trouble(self) -> int:
        if self.failing:
            return 3 if self.failing > _BAD else 2
        return 1 if self.waiting else 0


def topic_rows(
    series: Sequence[Point],
    buckets: Sequence[Mapping[str, Any]],
    causes: Sequence[Cause],
    waiting: Mapping[str, int],
    died: Deaths,
    lately: Mapping[str, tuple[int, int]],
    since_then: Mapping[str, int],
    pace: Mapping[str, float],
    view: View,
    now: float,
) -> tuple[TopicRow, ...]:
    """Every topic that was written to in the range, or of which dead letters wait; the most troubled first.

    `lately`: what was acknowledged and what died in the last minute, by topic; `since_then`: what was acknowledged since
    the topic's last death; `pace`: what was acknowledged a second, over the seconds of the throughput of all topics.
    """
    points, histograms = _by_topic(series), defaultdict[str, dict[int, int]](dict)
    for row in buckets:
        histograms[row["topic"]][row["bucket"]] = row["count"]
    dead, cured, aside = died.by("topic"), died.by("topic", "cured"), died.by("topic", "aside")
    lasts = {} if view.over(now) else died.lasts
    since, at = view.since(now), view.at(now)
    width, rows = _width(since, view.step, at), []
    for name in {*points, *waiting, *dead}:
        if view.topic not in (None, name):
            continue
        own = [cause for cause in causes if cause.topic == name]
        rates, failures = _lines(points[name], since, width, at)
        acknowledged, settled = sum(point.acknowledged for point in points[name]), dead.get(name, 0)
        left = settled - cured.get(name, 0) - aside.get(name, 0)
        delivered = min(since_then.get(name, 0), acknowledged)
        recovered = name in lasts and is_over(
            now - lasts[name], died=settled, before=acknowledged - delivered, since=delivered
        )
        failing = None
        if left > 0 and view.over(now):
            failing = settled / (settled + acknowledged)
        elif left > 0 and not recovered:
            failing = _failing(points[name], lately.get(name))
        rows.append(
            TopicRow(
                topic=name,
                acknowledged=acknowledged,
                dead=settled,
                throughput=pace.get(name, 0.0),
                failing=failing,
                p99=next(iter(quantiles(histograms[name], (0.99,))), None),
                waiting=waiting.get(name, 0),
                rates=rates,
                failures=failures,
                cause=own[0] if own else None,
                causes=len(own),
                cured=cured.get(name, 0),
                left=left,
                delivered=delivered,
                recovered=recovered,
            )
        )
    return tuple(sorted(rows, key=_place))


def _place(row: TopicRow) -> tuple[int, int, int, str]:
    """By trouble, then by the order of magnitude, then by name: lines that fail alike do not change places each second."""
    return -row.trouble, -len(str(row.dead or row.waiting)), -len(str(row.acknowledged)), row.topic


def _by_topic(series: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = defaultdict(list)
    for point in series:
        found[point.topic].append(point)
    return found


def _failing(points: Sequence[Point], lately: tuple[int, int] | None) -> float | None:
    """The share of the last minute that died; of a topic without a message in it the last that is known says it."""
    acknowledged, dead = lately or (0, 0)
    if not acknowledged + dead:
        last = max(
            (point for point in points if point.acknowledged + point.dead),
            key=lambda one: one.at,
            default=None,
        )
        acknowledged, dead = (last.acknowledged, last.dead) if last else (0, 0)
    return dead / (acknowledged + dead) if dead else None


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

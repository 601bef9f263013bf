"""Build the rows of the overview's topic table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.deaths import FailureCounts
from producer_core.dashboard.queries.view import View
from producer_core.metrics.histogram import quantiles
from producer_core.replay.active_cause import is_over

BARS = 50
"""The approximate number of points in a sparkline."""
_BAD = 0.05


@dataclass(frozen=True)
class Point:
    """Counts one window of one topic, with the seconds that it covers."""

    at: int
    seconds: int
    topic: str
    acknowledged: int
    dead: int
    bytes: int


@dataclass(frozen=True)
class TopicRow:
    """Holds the state of a topic.

    `rates` (acknowledged per second) and `failures` cover the range, oldest first, with None where no statistics exist.
    `failing` is the share of the last minute that failed, unless it was replayed or archived since; for a past range,
    the share of the whole range. `trouble` is 3 for a high error rate, 2 while any message fails, 1 for pending dead
    letters, else 0. `replayed` counts failed messages that were replayed since, and `left` those neither replayed nor
    archived. `delivered` counts messages acknowledged since the latest failure; `recovered` is set where they are
    enough to consider the fault over.
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
    replayed: int = 0
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
    failed: FailureCounts,
    lately: Mapping[str, tuple[int, int]],
    since_then: Mapping[str, int],
    pace: Mapping[str, float],
    view: View,
    now: float,
) -> tuple[TopicRow, ...]:
    """Return every topic with messages in the range or pending dead letters, worst first.

    `lately` has the messages acknowledged and failed in the last minute by topic, `since_then` those acknowledged since
    the topic's latest failure, and `pace` the throughput by topic over the same seconds as the total throughput.
    """
    points, histograms = _by_topic(series), defaultdict[str, dict[int, int]](dict)
    for row in buckets:
        histograms[row["topic"]][row["bucket"]] = row["count"]
    dead, replayed = failed.by("topic"), failed.by("topic", "cured")
    archived = failed.by("topic", "aside")
    lasts = {} if view.over(now) else failed.last_by_topic
    since, at = view.since(now), view.at(now)
    width, rows = _width(since, view.step, at), []
    for name in {*points, *waiting, *dead}:
        if view.topic not in (None, name):
            continue
        own = [cause for cause in causes if cause.topic == name]
        rates, failures = _lines(points[name], since, width, at)
        acknowledged, failed_count = sum(point.acknowledged for point in points[name]), dead.get(name, 0)
        left = failed_count - replayed.get(name, 0) - archived.get(name, 0)
        delivered = min(since_then.get(name, 0), acknowledged)
        recovered = name in lasts and is_over(
            now - lasts[name], died=failed_count, before=acknowledged - delivered, since=delivered
        )
        failing = None
        if left > 0 and view.over(now):
            failing = failed_count / (failed_count + acknowledged)
        elif left > 0 and not recovered:
            failing = _failing(lately.get(name))
        rows.append(
            TopicRow(
                topic=name,
                acknowledged=acknowledged,
                dead=failed_count,
                throughput=pace.get(name, 0.0),
                failing=failing,
                p99=next(iter(quantiles(histograms[name], (0.99,))), None),
                waiting=waiting.get(name, 0),
                rates=rates,
                failures=failures,
                cause=own[0] if own else None,
                causes=len(own),
                replayed=replayed.get(name, 0),
                left=left,
                delivered=delivered,
                recovered=recovered,
            )
        )
    return tuple(sorted(rows, key=_sort_key))


def _sort_key(row: TopicRow) -> tuple[int, int, int, str]:
    """Sort by severity, order of magnitude and name, so that topics with similar failures keep their positions."""
    return -row.trouble, -len(str(row.dead or row.waiting)), -len(str(row.acknowledged)), row.topic


def _by_topic(series: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = defaultdict(list)
    for point in series:
        found[point.topic].append(point)
    return found


def _failing(lately: tuple[int, int] | None) -> float | None:
    """Return the share of the last minute that failed; None without failures, or without messages, in it."""
    acknowledged, dead = lately or (0, 0)
    return dead / (acknowledged + dead) if dead else None


def _width(since: int, step: int, now: float) -> int:
    """Return the seconds that a point of a sparkline covers, a multiple of the window."""
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

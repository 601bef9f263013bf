"""The data of a page: what the store says, as values and frames; one visit to the store for all of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboard.words import Situation
from producer_core.alerts.rules import RULES
from producer_core.dlq import DeadLetterFilter, DeadLetters, Group
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.failures import failure_of
from producer_core.histogram import quantiles
from producer_core.replay import Operation, list_operations, runners
from producer_core.store import Store

RANGES: Mapping[str, int] = {
    "5 min": 300, "15 min": 900, "1 hour": 3600, "6 hours": 21_600, "24 hours": 86_400, "7 days": 604_800,
    "30 days": 2_592_000,
}  # fmt: skip
"""The time ranges one can choose, in seconds."""

POINTS = 150
"""About how many windows a chart has; the store adds up the rest."""
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600)
LISTED = 200
QUANTILES = (0.5, 0.95, 0.99)
GONE = 40.0


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
class Overview:
    """Everything the overview shows, as of `now`."""

    now: float
    window: str
    since: int
    step: int
    situation: Situation
    error_rate: float | None
    throughput: float
    latency: tuple[float | None, ...]
    pending: int
    waiting: int
    series: tuple[Point, ...]
    percentiles: tuple[tuple[int, tuple[float | None, ...]], ...]
    dead_by_topic: Mapping[str, int]
    dead_by_code: Mapping[str, int]
    dead_total: int
    alerts: tuple[Mapping[str, Any], ...]
    producers: tuple[Mapping[str, Any], ...]
    seen_at: float | None


def step_of(seconds: int) -> int:
    """The width of a window for a range: the smallest that keeps a chart at about POINTS windows."""
    return next((step for step in STEPS if seconds / step <= POINTS), STEPS[-1])


def refresh(window: str) -> float:
    """How often a page with this range is worth drawing again, in seconds."""
    return 1.0 if RANGES[window] <= 3600 else 5.0


def overview(store: Store, window: str, now: float) -> Overview:
    """One consistent look at the store."""
    seconds = RANGES[window]
    step = step_of(seconds)
    since = (int(now) - seconds) // step * step
    with store.borrow():
        totals = store.rows("totals", since=since)[0]
        series = [_point(row) for row in store.rows("series", since=since, bucket=step)]
        buckets = store.rows("latency_buckets_by_window", since=since, bucket_seconds=step)
        causes = store.rows("deaths_by_cause", since=since, limit=20)
        producers = store.rows("producers", since=now - 86_400)
        by_topic = store.rows("dead_letters_by_topic")
        by_code = store.rows("dead_letters_by_code")
        alerts = store.rows("alerts_firing", now=now)
        seen_at = store.rows("data_age")[0]["seen_at"]
    running = [row for row in producers if row["closed_at"] is None]
    recent = now - min(60, seconds)
    dead = sum(row["count"] for row in by_topic)
    return Overview(
        now=now,
        window=window,
        since=since,
        step=step,
        situation=_situation(totals, causes, running, len(producers) - len(running), window, now),
        error_rate=_share(totals["dead"], totals["acknowledged"] + totals["dead"]),
        throughput=sum(p.acknowledged for p in series if recent <= p.at) / min(60, seconds),
        latency=tuple(quantiles(_added(buckets), QUANTILES)),
        pending=sum(row["pending"] for row in running),
        waiting=sum(row["waiting_retry"] for row in running),
        series=tuple(series),
        percentiles=tuple(_percentiles(buckets)),
        dead_by_topic={row["topic"]: row["count"] for row in by_topic},
        dead_by_code={row["code"]: row["count"] for row in by_code},
        dead_total=dead,
        alerts=tuple(_as_shown(row, dead) for row in alerts if not (row["silenced"] or row["muted_by"])),
        producers=tuple(producers),
        seen_at=seen_at,
    )


def _as_shown(alert: Mapping[str, Any], dead: int) -> Mapping[str, Any]:
    """The alert with the number of dead letters that the page shows beside it; a producer counts every few seconds."""
    if alert["rule"] != "high_dlq_size" or dead <= alert["threshold"]:
        return alert
    text = RULES["high_dlq_size"].text.format(value=dead, threshold=alert["threshold"])
    return {**alert, "value": float(dead), "text": text}


def _point(row: Mapping[str, Any]) -> Point:
    return Point(
        row["window_start"], row["seconds"], row["topic"], row["acknowledged"], row["dead"], row["bytes"]
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _added(buckets: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    merged: dict[int, int] = defaultdict(int)
    for row in buckets:
        merged[row["bucket"]] += row["count"]
    return merged


def _percentiles(buckets: Sequence[Mapping[str, Any]]) -> list[tuple[int, tuple[float | None, ...]]]:
    windows: dict[int, dict[int, int]] = defaultdict(dict)
    for row in buckets:
        windows[row["window_start"]][row["bucket"]] = row["count"]
    return [(at, tuple(quantiles(counts, QUANTILES))) for at, counts in sorted(windows.items())]


def _situation(
    totals: Mapping[str, Any],
    causes: Sequence[Mapping[str, Any]],
    running: Sequence[Mapping[str, Any]],
    closed: int,
    window: str,
    now: float,
) -> Situation:
    alive = [row for row in running if now - row["seen_at"] <= GONE]
    troubled = [row["connection_error"] for row in alive if row["connection_error"]]
    return Situation(
        acknowledged=totals["acknowledged"],
        dead=totals["dead"],
        window=window,
        connected=sum(row["connected"] for row in alive),
        producers=len(running),
        closed=closed,
        silent_for=min((now - row["seen_at"] for row in running), default=None),
        connection_error=troubled[0] if troubled else None,
        pending=sum(row["pending"] for row in running),
        causes=[(row["topic"], failure_of(row["code"]).meaning, row["count"]) for row in causes],
    )


@dataclass(frozen=True)
class DeadLetterPage:
    """The dead letters that a filter matches, as of one moment, and the choices for the filters."""

    where: DeadLetterFilter
    total: int
    letters: tuple[DeadLetter, ...]
    groups: tuple[Group, ...]
    verdicts: Mapping[str, int]
    runners: int

    @property
    def safe(self) -> bool:
        return Scope(self.where, self.verdicts).safe

    @property
    def seen(self) -> DeadLetterFilter:
        """The filter bounded by what this page shows: an act leaves letters that died later alone."""
        if not self.letters:
            return self.where
        return replace(self.where, until=math.nextafter(self.letters[0].failed_at, math.inf))


@dataclass(frozen=True)
class Scope:
    """What an act would be about now: how many dead letters, with which verdicts."""

    about: DeadLetterFilter
    verdicts: Mapping[str, int]

    @property
    def count(self) -> int:
        return sum(self.verdicts.values())

    @property
    def safe(self) -> bool:
        """Every verdict says that a resend cannot write a second copy."""
        return all(verdict in SAFE_VERDICTS for verdict in self.verdicts)


def dead_letters(store: Store, where: DeadLetterFilter, now: float) -> DeadLetterPage:
    """The newest LISTED letters of the filter, and their groups."""
    letters = DeadLetters(store)
    with store.borrow():
        return DeadLetterPage(
            where=where,
            total=letters.count(where),
            letters=tuple(letters.find(where, limit=LISTED)),
            groups=tuple(letters.groups(where, limit=20)),
            verdicts=letters.count_by(where, "verdict"),
            runners=len(runners(store, now)),
        )


def scope(store: Store, about: DeadLetterFilter) -> Scope:
    """The letters of a selection that are still in its state, by verdict."""
    return Scope(about, DeadLetters(store).count_by(about, "verdict"))


def choices(store: Store, state: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The topics and the error codes that letters in a state have, by name: counts would move them under a click."""
    letters, whole = DeadLetters(store), DeadLetterFilter(state=state)
    with store.borrow():
        topics, codes = letters.count_by(whole, "topic"), letters.count_by(whole, "code")
    return tuple(sorted(topics)), tuple(sorted(codes))


def letter(store: Store, message_id: str) -> DeadLetter | None:
    """One letter with its body."""
    return DeadLetters(store).get(message_id)


def operations(store: Store, limit: int = 5) -> list[Operation]:
    """The latest replays."""
    return list_operations(store, limit=limit)

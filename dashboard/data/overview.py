"""The overview: how delivery goes, what fails and who sends, in one visit to the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.data.view import View
from dashboard.words import Situation
from producer_core.alerts.rules import RULES
from producer_core.failures import failure_of
from producer_core.histogram import quantiles
from producer_core.store import Store

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


def overview(store: Store, view: View | str, now: float) -> Overview:
    """One consistent look at the store; `view` may be the name of a time range."""
    view = View(view) if isinstance(view, str) else view
    seconds, step, since = view.seconds, view.step, view.since(now)
    with store.borrow():
        totals = store.rows("totals", since=since, **view.where)[0]
        series = [_point(row) for row in store.rows("series", since=since, bucket=step, **view.where)]
        buckets = store.rows("latency_buckets_by_window", since=since, bucket_seconds=step, **view.where)
        causes = store.rows("deaths_by_cause", since=since, limit=20, **view.where)
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
        window=view.window,
        since=since,
        step=step,
        situation=_situation(totals, causes, running, len(producers) - len(running), view.window, now),
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

"""The situation: who sends, who is missing, and whether anything is delivered; what the sentence on top is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.data.deaths import Deaths
from dashboard.data.view import View
from dashboard.words import Cause, Situation

GONE = 40.0
"""Seconds after which a producer that was never closed counts as lost."""
MINUTE = 60

Rows = Sequence[Mapping[str, Any]]


def chosen_ones(rows: list[dict[str, Any]], producer: str | None) -> list[dict[str, Any]]:
    return [row for row in rows if producer in (None, row["producer_id"])]


def alive(rows: Rows, now: float) -> Rows:
    return [row for row in rows if row["closed_at"] is None and now - row["seen_at"] <= GONE]


def memory(rows: Rows, now: float) -> tuple[int, int | None]:
    """Bytes of the living producer that is nearest to its limit, and that limit."""
    used = [(row["memory_bytes"], row["memory_limit"]) for row in alive(rows, now)]
    return max(used, key=lambda one: (one[0] / one[1] if one[1] else 0.0, one[0]), default=(0, None))


def situation(
    view: View,
    acknowledged: int,
    died: Deaths,
    still: bool,
    trouble: int,
    causes: Sequence[Cause],
    producers: Rows,
    dead: int,
    now: float,
) -> Situation:
    """`acknowledged` and `died` are of the range, `dead` letters wait in all, `still` says that nothing moves although it
    should, and `trouble` is that of the most troubled topic.
    """
    running = [row for row in producers if row["closed_at"] is None]
    living = alive(running, now)
    lost = [
        now - row["seen_at"]
        for row in running
        if now - row["seen_at"] > GONE and row["seen_at"] >= view.since(now)
    ]
    troubled = [row["connection_error"] for row in living if not row["connected"] and row["connection_error"]]
    return Situation(
        acknowledged=acknowledged,
        dead=died.total,
        cured=died.cured,
        aside=died.aside,
        window=view.window,
        connected=sum(row["connected"] for row in living),
        producers=len(living),
        closed=len(producers) - len(running),
        silent_for=min((now - row["seen_at"] for row in running), default=None),
        connection_error=troubled[0] if troubled else None,
        pending=sum(row["pending"] for row in running),
        causes=causes,
        gone=len(lost),
        gone_for=min(lost, default=0.0),
        failed_ago=None if died.last is None else now - died.last,
        failing=trouble > 2,
        dying=trouble > 1,
        stalled=still,
        waiting=dead,
        over=view.over(now),
        since=float(view.since(now)),
        until=view.at(now),
    )


def stalled(producers: Rows, last: Mapping[str, Any], now: float) -> bool:
    """Messages wait, not for a retry of ours, and in the last minute none was settled."""
    living = alive(producers, now)
    waits = sum(row["pending"] - row["waiting_retry"] for row in living)
    long_enough = all(now - row["started_at"] > MINUTE for row in living)
    return waits > 0 and long_enough and not last["acknowledged"] + last["dead"]

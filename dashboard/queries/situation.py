"""The situation: who sends, who is missing, and whether anything is delivered; what the sentence on top is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.deaths import Deaths
from producer_core.dashboard.queries.topics import TopicRow
from producer_core.dashboard.queries.view import View

GONE = 40.0
"""Seconds after which a producer that was never closed counts as lost."""
MINUTE = 60
LATELY = 900.0
"""Seconds in which an outage that is over is still worth a sentence."""
_BRIEF = 4

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Situation:
    """What the sentence on top is made of. `causes` are of messages that failed in the range, what waits most first.

    Of those that failed (`dead`) `cured` were replayed since, and `aside` put aside. `connected` and `producers` count
    those that run; `gone` were lost within the range and never closed. `dying`: something fails right now; `failing`:
    there is a topic on which much does, however little that is of all; `failing_topics` are those, the worst first. `delivered`: on the topics with open failures,
    since the last of each; `recovered`: so many that the fault is over. For `cut_off_for` seconds no broker was there at
    all, until `cut_off_ago`; since then `delivered_again` were acknowledged.
    """

    acknowledged: int
    dead: int
    window: str
    connected: int
    producers: int
    closed: int
    silent_for: float | None
    connection_error: str | None
    pending: int
    causes: Sequence[Cause] = ()
    gone: int = 0
    gone_for: float = 0.0
    failed_ago: float | None = None
    failing: bool = False
    dying: bool = False
    failing_topics: Sequence[str] = ()
    delivered: int = 0
    recovered: bool = False
    cut_off_for: float = 0.0
    cut_off_ago: float | None = None
    delivered_again: int = 0
    cured: int = 0
    aside: int = 0
    stalled: bool = False
    waiting: int = 0
    over: bool = False
    since: float = 0.0
    until: float = 0.0

    @property
    def left(self) -> int:
        """Messages that failed and that nobody has dealt with yet."""
        return max(0, self.dead - self.cured - self.aside)


class BrokerOutage(NamedTuple):
    """So many seconds without any broker, the last of them until then; `delivered` were acknowledged since."""

    seconds: float
    until: float
    delivered: int = 0


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
    topics: Sequence[TopicRow],
    causes: Sequence[Cause],
    producers: Rows,
    dead: int,
    cut_off: BrokerOutage | None,
    now: float,
) -> Situation:
    """`acknowledged` and `died` are of the range, `dead` dead letters wait in all, `still` says that nothing moves although it
    should, and `topics` say what fails now, and what is over.
    """
    trouble, failed = max((row.trouble for row in topics), default=0), [row for row in topics if row.left > 0]
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
        failing_topics=tuple(row.topic for row in topics if row.trouble == trouble > 1),
        delivered=sum(row.delivered for row in failed),
        recovered=bool(failed) and all(row.recovered for row in failed),
        cut_off_for=cut_off.seconds if cut_off else 0.0,
        cut_off_ago=now - cut_off.until if cut_off else None,
        delivered_again=cut_off.delivered if cut_off else 0,
        stalled=still,
        waiting=dead,
        over=view.over(now),
        since=float(view.since(now)),
        until=view.at(now),
    )


def outage(rows: Rows, now: float) -> BrokerOutage | None:
    """The last time that no producer reached any broker, by the looks of their clients; None where there was none, or
    one so brief as every start has it."""
    cut_off = _last_run([row for row in rows if row["cut_off"] >= row["samples"]])
    seconds = sum(row["seconds"] for row in cut_off)
    if seconds < _BRIEF:
        return None
    return BrokerOutage(seconds, min(now, cut_off[-1]["window_start"] + cut_off[-1]["seconds"]))


def _last_run(rows: Rows) -> Rows:
    """The last of them that follow each other, but for a moment in which a broker was seen."""
    first = len(rows) - 1
    while first > 0 and rows[first]["window_start"] - _end(rows[first - 1]) < _BRIEF:
        first -= 1
    return rows[max(first, 0) :]


def _end(row: Mapping[str, Any]) -> float:
    return float(row["window_start"] + row["seconds"])


def stalled(producers: Rows, last: Mapping[str, Any], now: float) -> bool:
    """Messages wait, not for a retry of ours, and in the last minute none was settled."""
    living = alive(producers, now)
    waits = sum(row["pending"] - row["waiting_retry"] for row in living)
    long_enough = all(now - row["started_at"] > MINUTE for row in living)
    return waits > 0 and long_enough and not last["acknowledged"] + last["dead"]

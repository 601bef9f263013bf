"""Read the events that explain a chart: broker outages, replays and starts of producers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from producer_core.dashboard.queries.situation import Rows, outages
from producer_core.dashboard.queries.view import View
from producer_core.store import Store

MOST = 20
"""The most events of one kind; a chart with more starts than that shows none, because they would hide its lines."""


@dataclass(frozen=True)
class ChartEvent:
    """Holds the beginning and the end of an event in seconds since 1970; both are the same for a moment."""

    kind: Literal["outage", "replay", "start"]
    begin: float
    end: float


def chart_events(store: Store, view: View, now: float) -> tuple[ChartEvent, ...]:
    """Return the events within the range, in order of their beginning.

    Outages are times when no selected producer had a broker connection. Replays are those of the selected cluster, whatever their topics.
    """
    since, until = view.since(now), view.at(now)
    with store.borrow():
        cut_off = store.rows("cut_off_times", since=since, until=view.until(now), **view.origin)
        replays = store.rows(
            "replay_times", since=since, until=until, now=now, most=MOST, cluster=view.cluster
        )
        started = store.rows("producer_starts", since=since, until=until, most=MOST + 1, **view.origin)
    found = [*_outages(cut_off, now), *_replays(replays), *_starts(started)]
    return tuple(sorted(found, key=lambda event: (event.begin, event.kind)))


def _outages(rows: Rows, now: float) -> Iterator[ChartEvent]:
    for outage in outages(rows, now)[-MOST:]:
        yield ChartEvent("outage", outage.begin, outage.until)


def _replays(rows: Rows) -> Iterator[ChartEvent]:
    for row in rows:
        yield ChartEvent("replay", row["started_at"], row["ended_at"])


def _starts(rows: Rows) -> Iterator[ChartEvent]:
    if len(rows) <= MOST:
        for row in rows:
            yield ChartEvent("start", row["started_at"], row["started_at"])

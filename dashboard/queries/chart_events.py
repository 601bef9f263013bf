"""Read the events that explain a chart: broker outages, replays and starts of producers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from producer_core.dashboard.queries.situation import Rows, outages, partial_outages
from producer_core.dashboard.queries.view import View
from producer_core.store import Store

MOST = 20
"""The most lines for starts of producers; if there are more starts, one line counts several."""
_MOST_BANDS = 100
"""The most bands of one kind, the latest."""


@dataclass(frozen=True)
class ChartEvent:
    """Holds the beginning and the end of an event in seconds since 1970; both are the same for a moment.

    In a `partial` outage, no broker was connected for a part of the time. `count` producers started at about one time.
    """

    kind: Literal["outage", "partial", "replay", "start"]
    begin: float
    end: float
    count: int = 1


def chart_events(store: Store, view: View, now: float) -> tuple[ChartEvent, ...]:
    """Return the events within the range, in order of their beginning.

    Outages are times when no selected producer had a broker connection. Replays are those of the selected cluster, whatever their topics.
    """
    since, until = view.since(now), view.at(now)
    with store.borrow():
        cut_off = store.rows("cut_off_times", since=since, until=view.until(now), **view.origin)
        replays = store.rows(
            "replay_times", since=since, until=until, now=now, most=_MOST_BANDS, cluster=view.cluster
        )
        started = store.rows("producer_starts", since=since, until=until, bucket=view.step, **view.origin)
    found = [*_outages(cut_off, now), *_replays(replays), *_starts(started, view.step)]
    shown = (_clipped(event, since, until) for event in found)
    return tuple(sorted(shown, key=lambda event: (event.begin, event.kind)))


def _clipped(event: ChartEvent, since: float, until: float) -> ChartEvent:
    """Return the part of the event within the range; the clock of another machine may have written any number."""
    return replace(event, begin=min(max(event.begin, since), until), end=max(min(event.end, until), since))


def _outages(rows: Rows, now: float) -> Iterator[ChartEvent]:
    for outage in outages(rows, now)[-_MOST_BANDS:]:
        yield ChartEvent("outage", outage.begin, outage.until)
    for outage in partial_outages(rows, now)[-_MOST_BANDS:]:
        yield ChartEvent("partial", outage.begin, outage.until)


def _replays(rows: Rows) -> Iterator[ChartEvent]:
    for row in rows:
        yield ChartEvent("replay", row["started_at"], row["ended_at"])


def _starts(rows: Rows, width: int) -> Iterator[ChartEvent]:
    """Yield the starts, latest first; those of a longer span together while there are more than `MOST`."""
    while len(rows) > MOST:
        width *= 2
        rows = list(_together(rows, width))
    for row in rows:
        yield ChartEvent("start", row["started_at"], row["started_at"], row["count"])


def _together(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[Mapping[str, Any]]:
    spans: dict[float, dict[str, Any]] = {}
    for row in rows:
        known = spans.setdefault(row["started_at"] // width, {"started_at": row["started_at"], "count": 0})
        known["count"] += row["count"]
        known["started_at"] = min(known["started_at"], row["started_at"])
    yield from spans.values()

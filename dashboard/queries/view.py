"""Define the view of a page: its time range, topic and producer, and the resolution of its charts."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from producer_core.dlq import DeadLetterFilter

RANGES: Mapping[str, int] = {
    "5 min": 300, "15 min": 900, "1 hour": 3600, "6 hours": 21_600, "24 hours": 86_400, "7 days": 604_800,
    "30 days": 2_592_000,
}  # fmt: skip
"""The relative time ranges, in seconds; a custom range has any beginning and end."""

DEFAULT = "15 min"
NO_APPLICATION = "(none)"
"""Producers and dead letters without an application name, in URLs and filters."""
POINTS = 150
"""The approximate number of windows in a chart; the store aggregates to this resolution."""
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800, 2_592_000)
_SHORTEST = 10
_LONGEST = 10 * 365 * 86_400
_ALONE = 3600
"""The length in seconds of a range with an end but no beginning."""


@dataclass(frozen=True)
class View:
    """Holds the time range and the filters of a page.

    `window` is a name of RANGES, or `wording.CUSTOM` with `start` and `end` in seconds since 1970. `topic` and
    `producer` (an id) filter the data, as do `application` (a name; an empty text for none) and `cluster` (an id); None
    means all. Page URLs use the same names.
    """

    window: str = DEFAULT
    topic: str | None = None
    producer: str | None = None
    start: int | None = None
    end: int | None = None
    application: str | None = None
    cluster: str | None = None

    @property
    def seconds(self) -> int:
        """Return the length of the range."""
        if self.start is None or self.end is None:
            return RANGES[self.window]
        return self.end - self.start

    @property
    def step(self) -> int:
        return step_of(self.seconds)

    def since(self, now: float) -> int:
        """Return the beginning of the range, aligned to a window."""
        start = int(now) - self.seconds if self.start is None else self.start
        return start // self.step * self.step

    def until(self, now: float) -> int | None:
        """Return the end of a past range for the queries; None for a range that includes now."""
        return self.end if self.over(now) else None

    def over(self, now: float) -> bool:
        """Return whether the range has ended."""
        return self.end is not None and self.end <= now

    def at(self, now: float) -> float:
        """Return the end of the charts: now, or the end of a past range."""
        return float(self.end) if self.end is not None and self.over(now) else now

    def before(self, now: float) -> tuple[int, int]:
        """Return the beginning and end of the previous period.

        It ends where this range begins and has the same length; for a relative range, the length of its elapsed part.
        """
        since = self.since(now)
        length = int(self.at(now)) - since
        return since - length, since

    @property
    def where(self) -> dict[str, str | None]:
        """Return the filters as parameters of the named queries."""
        return {"topic": self.topic, **self.origin}

    @property
    def origin(self) -> dict[str, str | None]:
        """Return the filters of queries whose rows have no topic."""
        return {"producer": self.producer, "application": self.application, "cluster": self.cluster}

    @property
    def origin_is_filtered(self) -> bool:
        """Return whether the view shows only some of the producers."""
        return any(value is not None for value in self.origin.values())

    def dead_letters(self, **changes: Any) -> DeadLetterFilter:
        """Return the filters for dead letters; by default the pending ones, at any time."""
        selected = DeadLetterFilter(
            topic=self.topic,
            producer_id=self.producer,
            application=self.application,
            cluster_id=self.cluster,
        )
        return replace(selected, **changes)

    @property
    def query(self) -> dict[str, str]:
        """Return the URL parameters, without defaults."""
        known = {**self.where, "application": NO_APPLICATION if self.application == "" else self.application}
        if self.start is not None and self.end is not None:
            known |= {"since": str(self.start), "until": str(self.end)}
        elif self.window != DEFAULT:
            known["range"] = self.window
        return {name: value for name, value in known.items() if value is not None}


def chosen(since: str | None, until: str | None, now: float) -> tuple[int, int] | None:
    """Return the time range of a URL, in seconds since 1970; None where it is missing or malformed.

    An end alone means the hour before it; a beginning alone means until now.
    """
    start, end = _seconds(since), _seconds(until)
    if start is None and end is None:
        return None
    end = int(now) if end is None else end
    start = end - _ALONE if start is None else start
    start, end = min(start, end), max(start, end)
    return max(start, end - _LONGEST), max(end, start + _SHORTEST)


def _seconds(text: str | None) -> int | None:
    """Parse a time; return None for values outside 1970 to 2106."""
    with contextlib.suppress(ValueError, OverflowError):
        if text is not None and 0 <= float(text) < 2**32:
            return int(float(text))
    return None


def step_of(seconds: int) -> int:
    """Return the smallest window width that keeps a chart at about POINTS windows."""
    return next((step for step in STEPS if seconds / step <= POINTS), STEPS[-1])


def refresh(view: View, now: float) -> float:
    """Return the refresh interval of a page with this range, in seconds."""
    if view.over(now):
        return 10.0
    return 1.0 if view.seconds <= 900 else 2.0 if view.seconds <= 3600 else 5.0

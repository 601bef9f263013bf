"""The view: what a person looks at (a time range, a topic, a producer), and how finely a chart draws it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

RANGES: Mapping[str, int] = {
    "5 min": 300, "15 min": 900, "1 hour": 3600, "6 hours": 21_600, "24 hours": 86_400, "7 days": 604_800,
    "30 days": 2_592_000,
}  # fmt: skip
"""The time ranges that follow the clock, in seconds; beside them a person may choose any beginning and end."""

DEFAULT = "15 min"
POINTS = 150
"""About how many windows a chart has; the store adds up the rest."""
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800, 2_592_000)
_SHORTEST = 10
_LONGEST = 10 * 365 * 86_400
_ALONE = 3600
"""Seconds of a range of which only the end was given."""


@dataclass(frozen=True)
class View:
    """`window` is a name of RANGES, or words.CUSTOM with its `start` and `end` in seconds since 1970.

    `topic` and `producer` (an id) narrow it, None is all of them. The same names stand in the address of every page.
    """

    window: str = DEFAULT
    topic: str | None = None
    producer: str | None = None
    start: int | None = None
    end: int | None = None

    @property
    def seconds(self) -> int:
        """How long the range is."""
        if self.start is None or self.end is None:
            return RANGES[self.window]
        return self.end - self.start

    @property
    def step(self) -> int:
        return step_of(self.seconds)

    def since(self, now: float) -> int:
        """The beginning of the range, at the beginning of a window."""
        start = int(now) - self.seconds if self.start is None else self.start
        return start // self.step * self.step

    def until(self, now: float) -> int | None:
        """The end of a range that is over, for the queries; None while the range goes on: everything up to now."""
        return self.end if self.over(now) else None

    def over(self, now: float) -> bool:
        """Whether nothing more can come into the range."""
        return self.end is not None and self.end <= now

    def at(self, now: float) -> float:
        """The moment that the charts end at: now, or the end of a range that is over."""
        return float(self.end) if self.end is not None and self.over(now) else now

    def before(self, now: float) -> tuple[int, int]:
        """The same time before: since and until of the range as long as this one that ends where this one begins.

        Of a range that follows the clock it is exactly as long as what has passed of this one.
        """
        since = self.since(now)
        length = int(self.at(now)) - since
        return since - length, since

    @property
    def where(self) -> dict[str, str | None]:
        """For the named queries of statistics."""
        return {"topic": self.topic, "producer": self.producer}

    @property
    def query(self) -> dict[str, str]:
        """As it stands in an address; what is as usual is left out."""
        known = {"topic": self.topic, "producer": self.producer}
        if self.start is not None and self.end is not None:
            known |= {"since": str(self.start), "until": str(self.end)}
        elif self.window != DEFAULT:
            known["range"] = self.window
        return {name: value for name, value in known.items() if value is not None}


def chosen(since: str | None, until: str | None, now: float) -> tuple[int, int] | None:
    """The time range in an address, in seconds since 1970; None where there is none, or it means nothing.

    An end alone means the hour before it; a beginning alone goes on to now.
    """
    start, end = _seconds(since), _seconds(until)
    if start is None and end is None:
        return None
    end = int(now) if end is None else end
    start = end - _ALONE if start is None else start
    start, end = min(start, end), max(start, end)
    return max(start, end - _LONGEST), max(end, start + _SHORTEST)


def _seconds(text: str | None) -> int | None:
    """None for what is no moment of this or the next century."""
    with contextlib.suppress(ValueError, OverflowError):
        if text is not None and 0 <= float(text) < 2**32:
            return int(float(text))
    return None


def step_of(seconds: int) -> int:
    """The width of a window for a range: the smallest that keeps a chart at about POINTS windows."""
    return next((step for step in STEPS if seconds / step <= POINTS), STEPS[-1])


def refresh(view: View, now: float) -> float:
    """How often a page with this range is worth drawing again, in seconds."""
    if view.over(now):
        return 10.0
    return 1.0 if view.seconds <= 900 else 2.0 if view.seconds <= 3600 else 5.0

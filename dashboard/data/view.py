"""The view: what a person looks at (a time range, a topic, a producer), and how finely a chart draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RANGES: Mapping[str, int] = {
    "5 min": 300, "15 min": 900, "1 hour": 3600, "6 hours": 21_600, "24 hours": 86_400, "7 days": 604_800,
    "30 days": 2_592_000,
}  # fmt: skip
"""The time ranges one can choose, in seconds."""

DEFAULT = "15 min"
POINTS = 150
"""About how many windows a chart has; the store adds up the rest."""
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600)


@dataclass(frozen=True)
class View:
    """`window` is a name of RANGES; `topic` and `producer` (an id) narrow it, None is all of them.

    The same names stand in the address of every page.
    """

    window: str = DEFAULT
    topic: str | None = None
    producer: str | None = None

    @property
    def seconds(self) -> int:
        return RANGES[self.window]

    @property
    def step(self) -> int:
        return step_of(self.seconds)

    def since(self, now: float) -> int:
        """The beginning of the range, at the beginning of a window."""
        return (int(now) - self.seconds) // self.step * self.step

    @property
    def where(self) -> dict[str, str | None]:
        """For the named queries of statistics."""
        return {"topic": self.topic, "producer": self.producer}


def step_of(seconds: int) -> int:
    """The width of a window for a range: the smallest that keeps a chart at about POINTS windows."""
    return next((step for step in STEPS if seconds / step <= POINTS), STEPS[-1])


def refresh(window: str) -> float:
    """How often a page with this range is worth drawing again, in seconds."""
    return 1.0 if RANGES[window] <= 3600 else 5.0

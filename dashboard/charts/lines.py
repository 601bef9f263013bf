"""Compute the lines of the overview's charts as values, which pages and notebooks draw in the same colors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from producer_core.dashboard.queries import QUANTILES, Point
from producer_core.dashboard.theme import COLOURS, PERCENTILE_COLOURS

NO_THROUGHPUT = "No acknowledged messages in this range."
NO_ERROR_RATE = "No settled messages in this range."
NO_LATENCY = "No latency data in this range."
FIRST_WINDOW = "The first values appear within 10 s."

_SHORT = 10  # seconds
_LINES = 8
_OTHERS = "#94a3b8"

Sums = Mapping[int, tuple[float, int, int]]
"""Seconds covered, acknowledged and failed messages, by window."""


class Ranged(Protocol):
    """The time range of a page."""

    @property
    def now(self) -> float: ...
    @property
    def since(self) -> int: ...


class Measured(Ranged, Protocol):
    """A time range with data by window and topic."""

    @property
    def step(self) -> int: ...
    @property
    def series(self) -> tuple[Point, ...]: ...


class Timed(Measured, Protocol):
    """A time range with data by window and topic, and with latency percentiles by window, in seconds."""

    @property
    def percentiles(self) -> tuple[tuple[int, tuple[float | None, ...]], ...]: ...


@dataclass(frozen=True)
class ChartLine:
    """Holds a line: its name, its color, and one value a window, with None where no producer wrote statistics."""

    name: str
    colour: str
    values: tuple[float | None, ...]


def windows(page: Measured) -> range:
    """Return the beginnings of the windows that a line has a value for."""
    return range(page.since, ends(page.now, page.step), page.step)


def ends(now: float, step: int) -> int:
    """Return the end of the lines; with short windows, the current window is left out because it is incomplete.

    Messages in flight would show there as a dip.
    """
    return int(now) if step > _SHORT else int(now) // step * step


def throughput_lines(page: Measured) -> list[ChartLine]:
    """Return acknowledged messages per second, by topic."""

    def line(name: str, sums: Sums, colour: str) -> ChartLine:
        def rate(at: int) -> float:
            seconds, acknowledged, _ = sums.get(at, (1.0, 0, 0))
            return acknowledged / seconds

        return ChartLine(name, colour, _values(page, rate))

    return [line(*topic) for topic in topics(page, lambda point: (point.acknowledged, point.dead))]


def error_rate_lines(page: Measured) -> list[ChartLine]:
    """Return failed messages as a percentage of settled ones, by topic, with gaps where a topic settled none."""

    def line(name: str, sums: Sums, colour: str) -> ChartLine:
        def share(at: int) -> float | None:
            _, acknowledged, dead = sums.get(at, (1.0, 0, 0))
            return 100 * dead / (dead + acknowledged) if dead + acknowledged else None

        return ChartLine(name, colour, _values(page, share))

    return [line(*topic) for topic in topics(page, lambda point: (point.dead, point.acknowledged))]


def latency_lines(page: Timed) -> list[ChartLine]:
    """Return percentiles of merged histograms, in milliseconds."""
    by_window = dict(page.percentiles)

    def line(place: int, quantile: float) -> ChartLine:
        def value(at: int) -> float | None:
            found = by_window.get(at, (None,) * len(QUANTILES))[place]
            return None if found is None else 1000 * found

        return ChartLine(f"p{100 * quantile:g}", PERCENTILE_COLOURS[place], _values(page, value))

    return [line(place, quantile) for place, quantile in enumerate(QUANTILES)]


def others(number: int) -> str:
    return "1 other" if number == 1 else f"{number} others"


def topics(page: Measured, weight: Callable[[Point], tuple[int, int]]) -> list[tuple[str, Sums, str]]:
    """Return the topics with the largest weight, each with its sums by window and a color, and one line for the rest.

    A topic has the same color in every chart of the page.
    """
    names = sorted({point.topic for point in page.series})
    first, second = Counter[str](), Counter[str]()
    for point in page.series:
        first[point.topic] += weight(point)[0]
        second[point.topic] += weight(point)[1]
    ranked = sorted(names, key=lambda name: (-first[name], -second[name], name))
    shown = ranked if len(ranked) <= _LINES else ranked[: _LINES - 1]
    lines = [(name, _sums(page, {name}), COLOURS[names.index(name) % len(COLOURS)]) for name in sorted(shown)]
    rest = set(names) - set(shown)
    return [*lines, (others(len(rest)), _sums(page, rest), _OTHERS)] if rest else lines


def _values(page: Measured, value: Callable[[int], float | None]) -> tuple[float | None, ...]:
    written = {point.at for point in page.series}
    return tuple(value(at) if at in written else None for at in windows(page))


def _sums(page: Measured, names: AbstractSet[str]) -> Sums:
    sums: dict[int, tuple[float, int, int]] = {}
    for point in page.series:
        if point.topic in names:
            seconds, acknowledged, dead = sums.get(point.at, (1.0, 0, 0))
            sums[point.at] = (
                max(seconds, _covered(point, page.now)),
                acknowledged + point.acknowledged,
                dead + point.dead,
            )
    return sums


def _covered(point: Point, now: float) -> float:
    """Return the elapsed seconds of a window."""
    return max(1.0, min(point.seconds, now - point.at))

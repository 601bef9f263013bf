"""Building blocks of the charts: the empty figure, lines with gaps, topics by weight, and a message for missing data."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import plotly.graph_objects as go

from producer_core.dashboard.queries import Point
from producer_core.dashboard.theme import COLOURS
from producer_core.dashboard.wording import short

HEIGHT = 230


class RenderedChart(NamedTuple):
    """Holds a figure as JSON, and its height in pixels."""

    spec: str
    height: int


def rendered(figure: Any) -> RenderedChart:
    return RenderedChart(figure.to_json(), figure.layout.height)


_SHORT = 10  # seconds
_LINES = 8
_OTHERS = "#94a3b8"
_TIMES = (
    {"dtickrange": [None, 59_999], "value": "%H:%M:%S"},
    {"dtickrange": [60_000, 43_200_000], "value": "%H:%M"},
    {"dtickrange": [43_200_000, None], "value": "%-d %b"},
)
"""The time format of the axis, by the distance of its ticks in milliseconds."""

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


def ends(now: float, step: int) -> int:
    """Return the end of the lines; with short windows, the current window is left out because it is incomplete."""
    return int(now) if step > _SHORT else int(now) // step * step


def others(number: int) -> str:
    return "1 other" if number == 1 else f"{number} others"


def blank(revision: str) -> Any:
    """Return an empty figure.

    The zoom is kept while `revision` stays the same, until another range is selected. All line charts have the same
    left margin, so that the time axes of stacked charts align.
    """
    figure = go.Figure(layout={"template": "none"})
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 56, "r": 12, "t": 8, "b": 26},
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        uirevision=revision,
    )
    figure.update_xaxes(showgrid=False, tickformatstops=_TIMES, hoverformat="%-d %b %Y, %H:%M:%S UTC")
    figure.update_yaxes(rangemode="tozero", zeroline=False, nticks=5, separatethousands=True)
    return figure


def line(figure: Any, name: str, page: Measured, value: Any, hover: str, colour: str) -> None:
    """Add a line over every window of the range, with a gap where no producer wrote statistics.

    With short windows, the current window is left out, because messages in flight would show as a dip.
    """
    written = {point.at for point in page.series}
    ats = list(range(page.since, ends(page.now, page.step), page.step))
    found = [value(at) if at in written else None for at in ats]
    figure.add_scatter(
        x=[datetime.fromtimestamp(at, UTC) for at in ats],
        y=found,
        name=html.escape(short(name)),
        mode=mode(found),
        marker={"size": 3},
        connectgaps=False,
        hovertemplate=hover,
        line={"width": 2, "color": colour},
    )


def mode(found: Sequence[float | None]) -> str:
    """Return the drawing mode: markers only where a value between gaps would be invisible as a line.

    The browser draws each marker separately, which takes longer than the rest of a chart.
    """
    around = (None, *found, None)
    alone = any(
        one is not None and around[at] is None and around[at + 2] is None for at, one in enumerate(found)
    )
    return "lines+markers" if alone else "lines"


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


def _sums(page: Measured, topics: AbstractSet[str]) -> Sums:
    sums: dict[int, tuple[float, int, int]] = {}
    for point in page.series:
        if point.topic in topics:
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


def values(figure: Any) -> list[float]:
    return [y for trace in figure.data for y in trace.y if y is not None]


def decades(figure: Any) -> list[float]:
    """Return the powers of ten around all values, so that the axis has labels and stays stable."""
    found = values(figure)
    low, high = (min(found), max(found)) if found else (1.0, 10.0)
    return [math.floor(math.log10(low)), max(math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1)]


def top(figure: Any, least: float) -> float:
    return max(least, 1.08 * max(values(figure), default=0.0))


def or_message(figure: Any, page: Ranged, text: str) -> Any:
    figure.update_xaxes(
        range=[datetime.fromtimestamp(page.since, UTC), datetime.fromtimestamp(page.now, UTC)]
    )
    return figure if values(figure) else message(figure, text)


def message(figure: Any, text: str) -> Any:
    figure.data = []
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=text, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", opacity=0.7)
    return figure

"""The parts of a chart: a blank figure, lines over windows with gaps, topics by weight, and a sentence for none."""

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
    """A figure as the browser takes it, and how high it is."""

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
"""How a time is written on the axis, by the distance of its ticks in milliseconds."""

Sums = Mapping[int, tuple[float, int, int]]
"""By window: the seconds it covers, acknowledged, dead."""


class Ranged(Protocol):
    """A page's time range: everything a time axis needs."""

    @property
    def now(self) -> float: ...
    @property
    def since(self) -> int: ...


class Measured(Ranged, Protocol):
    """A range and what was written in it, by window and topic."""

    @property
    def step(self) -> int: ...
    @property
    def series(self) -> tuple[Point, ...]: ...


def ends(now: float, step: int) -> int:
    """Where the lines of a chart end: a window that is not over yet is left out while windows are short."""
    return int(now) if step > _SHORT else int(now) // step * step


def others(number: int) -> str:
    return f"{number} others"


def blank(revision: str) -> Any:
    """Zoom is kept while `revision` is the same: until another range is chosen.

    The left margin is the same for all lines, so that the time axes of charts above each other agree.
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
    """One line over every window of the range; None, so a gap, where no producer wrote anything.

    The window that is not over yet is left out while it is short: what is still on its way would look like a dip.
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
    """Dots only where a value stands alone between gaps, as a line through one point cannot be seen: a browser draws
    each dot by itself, which takes longer than all the rest of a chart.
    """
    around = (None, *found, None)
    alone = any(
        one is not None and around[at] is None and around[at + 2] is None for at, one in enumerate(found)
    )
    return "lines+markers" if alone else "lines"


def topics(page: Measured, weight: Callable[[Point], tuple[int, int]]) -> list[tuple[str, Sums, str]]:
    """The topics that weigh most, each with its sums by window and a colour; the rest is one line more.

    A topic has the same colour in every chart of the page.
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
    """The seconds of a window that have passed."""
    return max(1.0, min(point.seconds, now - point.at))


def values(figure: Any) -> list[float]:
    return [y for trace in figure.data for y in trace.y if y is not None]


def decades(figure: Any) -> list[float]:
    """The powers of ten around all values, so that the axis has labels and does not jump."""
    found = values(figure)
    low, high = (min(found), max(found)) if found else (1.0, 10.0)
    return [math.floor(math.log10(low)), max(math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1)]


def top(figure: Any, least: float) -> float:
    return max(least, 1.08 * max(values(figure), default=0.0))


def or_sentence(figure: Any, page: Ranged, text: str) -> Any:
    figure.update_xaxes(
        range=[datetime.fromtimestamp(page.since, UTC), datetime.fromtimestamp(page.now, UTC)]
    )
    return figure if values(figure) else sentence(figure, text)


def sentence(figure: Any, text: str) -> Any:
    figure.data = []
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=text, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", opacity=0.7)
    return figure

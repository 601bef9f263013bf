"""The figures: values in, Plotly figures out; nothing else is read and nothing is invented."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from dashboard.data import QUANTILES, Overview, Point
from dashboard.serve import COLOURS
from dashboard.words import milliseconds, short

_HEIGHT = 230
_SHORT = 10  # seconds
_LATENCY = ("#059669", "#7c3aed", "#db2777")  # not a topic's
_LINES = 8
_OTHERS = "#94a3b8"
_DECADES = range(-1, 7)  # of milliseconds
_TIMES = (
    {"dtickrange": [None, 59_999], "value": "%H:%M:%S"},
    {"dtickrange": [60_000, 43_200_000], "value": "%H:%M"},
    {"dtickrange": [43_200_000, None], "value": "%-d %b"},
)
"""How a time is written on the axis, by the distance of its ticks in milliseconds."""

Sums = Mapping[int, tuple[float, int, int]]
"""By window: the seconds it covers, acknowledged, dead."""


def throughput(page: Overview) -> Any:
    """Acknowledged messages a second, by topic."""
    figure = _figure(page.window)
    for topic, sums, colour in _topics(page, lambda point: (point.acknowledged, point.dead)):

        def rate(at: int, sums: Sums = sums) -> float:
            seconds, acknowledged, _ = sums.get(at, (1.0, 0, 0))
            return acknowledged / seconds

        _line(figure, topic, page, rate, "%{y:,.1f} /s", colour)
    figure.update_yaxes(range=[0, _top(figure, least=1)])
    return _or_sentence(figure, page, "Nothing was acknowledged in this range.")


def error_rate(page: Overview) -> Any:
    """Messages that died, as a share of those settled, by topic; nothing where a topic settled nothing."""
    figure = _figure(page.window)
    for topic, sums, colour in _topics(page, lambda point: (point.dead, point.acknowledged)):

        def share(at: int, sums: Sums = sums) -> float | None:
            _, acknowledged, dead = sums.get(at, (1.0, 0, 0))
            return 100 * dead / (dead + acknowledged) if dead + acknowledged else None

        _line(figure, topic, page, share, "%{y:.2f} %", colour)
    figure.update_yaxes(range=[0, _top(figure, least=5)], ticksuffix=" %")
    return _or_sentence(figure, page, "Nothing was settled in this range.")


def latency(page: Overview) -> Any:
    """Percentiles from merged histograms, in milliseconds on a logarithmic axis."""
    figure = _figure(page.window)
    by_window = dict(page.percentiles)
    for place, quantile in enumerate(QUANTILES):

        def value(at: int, place: int = place) -> float | None:
            found = by_window.get(at, (None,) * len(QUANTILES))[place]
            return None if found is None else 1000 * found

        _line(figure, f"p{100 * quantile:g}", page, value, "%{y:,.3~r} ms", _LATENCY[place])
    figure.update_yaxes(
        type="log",
        range=_decades(figure),
        tickvals=[10.0**power for power in _DECADES],
        ticktext=[milliseconds(10.0 ** (power - 3)).replace(".0 ", " ") for power in _DECADES],
    )
    return _or_sentence(figure, page, "No latency was measured in this range.")


def waiting(counts: Mapping[str, int], empty: str, *, beside: Iterable[str] = ()) -> Any:
    """Dead letters that wait, as bars, the longest on top; what has no room is added up in the last.

    `beside`: the names of a chart next to this one, so that the bars of both begin at the same place.
    """
    figure = _figure("")
    ordered = _with_others(counts)
    longest = max((len(short(name)) for name in (*counts, *beside)), default=0)
    figure.add_bar(
        x=[count for _, count in ordered], y=list(range(len(ordered))), customdata=[name for name, _ in ordered],
        text=[f"{count:,}" for _, count in ordered], textposition="auto", insidetextanchor="end", orientation="h",
        hovertemplate="%{customdata}: %{x:,}<extra></extra>", marker={"color": COLOURS[0]},
    )  # fmt: skip
    figure.update_layout(
        height=max(92, 16 + 24 * len(ordered)),
        margin={"l": 16 + 7.2 * longest, "b": 4, "t": 4},
        hovermode="closest",
        showlegend=False,
        bargap=0.35,
    )
    figure.update_yaxes(
        tickvals=list(range(len(ordered))),
        ticktext=[short(name) for name, _ in ordered],
        ticksuffix="  ",
        showgrid=False,
        fixedrange=True,
    )
    figure.update_xaxes(visible=False, fixedrange=True, rangemode="tozero")
    return figure if ordered else _sentence(figure, empty)


_BARS = 5


def _with_others(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) > _BARS:
        rest = ordered[_BARS - 1 :]
        ordered = [*ordered[: _BARS - 1], (_others(len(rest)), sum(count for _, count in rest))]
    return ordered[::-1]


def _others(number: int) -> str:
    return f"{number} others"


def _figure(revision: str) -> Any:
    """Zoom is kept while `revision` is the same: until another range is chosen.

    The left margin is the same for all lines, so that the time axes of charts above each other agree.
    """
    figure = go.Figure()
    figure.update_layout(
        height=_HEIGHT,
        margin={"l": 56, "r": 12, "t": 8, "b": 26},
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        uirevision=revision,
    )
    figure.update_xaxes(showgrid=False, tickformatstops=_TIMES, hoverformat="%-d %b %Y, %H:%M:%S UTC")
    figure.update_yaxes(rangemode="tozero", zeroline=False, nticks=5, separatethousands=True)
    return figure


def _line(figure: Any, name: str, page: Overview, value: Any, hover: str, colour: str) -> None:
    """One line over every window of the range; None, so a gap, where no producer wrote anything.

    The window that is not over yet is left out while it is short: what is still on its way would look like a dip.
    """
    written = {point.at for point in page.series}
    begun = page.step > _SHORT
    ends = int(page.now) if begun else int(page.now) // page.step * page.step
    ats = list(range(page.since, ends, page.step))
    figure.add_scatter(
        x=[datetime.fromtimestamp(at, UTC) for at in ats],
        y=[value(at) if at in written else None for at in ats],
        name=short(name),
        mode="lines+markers",
        marker={"size": 3},
        connectgaps=False,
        hovertemplate=hover,
        line={"width": 2, "color": colour},
    )


def _topics(page: Overview, weight: Callable[[Point], tuple[int, int]]) -> list[tuple[str, Sums, str]]:
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
    return [*lines, (_others(len(rest)), _sums(page, rest), _OTHERS)] if rest else lines


def _sums(page: Overview, topics: AbstractSet[str]) -> Sums:
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


def _values(figure: Any) -> list[float]:
    return [y for trace in figure.data for y in trace.y if y is not None]


def _decades(figure: Any) -> list[float]:
    """The powers of ten around all values, so that the axis has labels and does not jump."""
    values = _values(figure)
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    return [math.floor(math.log10(low)), max(math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1)]


def _top(figure: Any, least: float) -> float:
    return max(least, 1.08 * max(_values(figure), default=0.0))


def _or_sentence(figure: Any, page: Overview, text: str) -> Any:
    figure.update_xaxes(
        range=[datetime.fromtimestamp(page.since, UTC), datetime.fromtimestamp(page.now, UTC)]
    )
    return figure if _values(figure) else _sentence(figure, text)


def _sentence(figure: Any, text: str) -> Any:
    figure.data = []
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=text, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", opacity=0.7)
    return figure

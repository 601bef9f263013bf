"""Figures of the overview: error rate, throughput, latency and pending dead letters."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from producer_core.dashboard.charts.chart import (
    RenderedChart,
    blank,
    decades,
    line,
    message,
    or_message,
    rendered,
    top,
)
from producer_core.dashboard.charts.lines import (
    FIRST_WINDOW,
    NO_ERROR_RATE,
    NO_LATENCY,
    NO_THROUGHPUT,
    ChartLine,
    ends,
    error_rate_lines,
    latency_lines,
    others,
    throughput_lines,
)
from producer_core.dashboard.queries import OverviewPage, Point
from producer_core.dashboard.theme import COLOURS
from producer_core.dashboard.wording import CUSTOM, milliseconds, short

_DECADES = range(-1, 7)  # of milliseconds


@dataclass(frozen=True)
class OverviewLines:
    """Holds the input of the overview's lines, without data that does not affect them, as a cache key.

    `first_window`: the only data are of the current window, which is not drawn yet.
    """

    window: str
    since: int
    step: int
    now: float
    series: tuple[Point, ...]
    percentiles: tuple[tuple[int, tuple[float | None, ...]], ...]
    first_window: bool = False


def lines_of(page: OverviewPage) -> OverviewLines:
    end = ends(page.now, page.step)
    series = tuple(point for point in page.series if point.at < end)
    return OverviewLines(
        page.window,
        page.begin // page.step * page.step,
        page.step,
        end,
        series,
        tuple(one for one in page.percentiles if one[0] < end),
        first_window=bool(page.series) and not series,
    )


@lru_cache(maxsize=16)
def overview_lines(lines: OverviewLines) -> tuple[RenderedChart, RenderedChart, RenderedChart]:
    """Return error rate, throughput and latency; all viewers share the figures until the next window ends."""
    return rendered(error_rate(lines)), rendered(throughput(lines)), rendered(latency(lines))


def throughput(page: OverviewPage | OverviewLines) -> Any:
    """Return acknowledged messages per second, by topic."""
    figure = _drawn(page, throughput_lines(page), "%{y:,.1f}/s")
    figure.update_yaxes(range=[0, top(figure, least=1)])
    return or_message(figure, page, _empty(page, NO_THROUGHPUT))


def error_rate(page: OverviewPage | OverviewLines) -> Any:
    """Return failed messages as a share of settled ones, by topic, with gaps where a topic settled none."""
    figure = _drawn(page, error_rate_lines(page), "%{y:.2f}%")
    figure.update_yaxes(range=[0, top(figure, least=5)], ticksuffix="%")
    return or_message(figure, page, _empty(page, NO_ERROR_RATE))


def latency(page: OverviewPage | OverviewLines) -> Any:
    """Return percentiles of merged histograms, in milliseconds on a logarithmic axis."""
    figure = _drawn(page, latency_lines(page), "%{y:,.3~r} ms")
    figure.update_yaxes(
        type="log",
        range=decades(figure),
        tickvals=[10.0**power for power in _DECADES],
        ticktext=[milliseconds(10.0 ** (power - 3)).replace(".0 ", " ") for power in _DECADES],
    )
    return or_message(figure, page, _empty(page, NO_LATENCY))


def _empty(page: OverviewPage | OverviewLines, text: str) -> str:
    """Return the message of a chart without lines."""
    return FIRST_WINDOW if isinstance(page, OverviewLines) and page.first_window else text


def _drawn(page: OverviewPage | OverviewLines, lines: Sequence[ChartLine], hover: str) -> Any:
    figure = blank(_revision(page))
    for one in lines:
        line(figure, page, one, hover)
    return figure


def _revision(page: OverviewPage | OverviewLines) -> str:
    """Return a key that changes with the range, so that the zoom does not carry over to another range."""
    return f"{page.since}" if page.window == CUSTOM else page.window


def waiting(counts: Mapping[str, int], empty: str, *, beside: Iterable[str] = ()) -> Any:
    """Return pending dead letters as bars, largest on top, with the rest combined in the last bar.

    `beside` has the names of an adjacent chart, so that the bars of both begin at the same position.
    """
    figure = blank("")
    ordered = _with_others(counts)
    longest = max((len(short(name)) for name in (*counts, *beside)), default=0)
    figure.add_bar(
        x=[count for _, count in ordered], y=list(range(len(ordered))), customdata=[html.escape(name) for name, _ in ordered],
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
        ticktext=[html.escape(short(name)) for name, _ in ordered],
        ticksuffix="  ",
        showgrid=False,
        fixedrange=True,
    )
    figure.update_xaxes(visible=False, fixedrange=True, rangemode="tozero")
    return figure if ordered else message(figure, empty)


_BARS = 5


def _with_others(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) > _BARS:
        rest = ordered[_BARS - 1 :]
        ordered = [*ordered[: _BARS - 1], (others(len(rest)), sum(count for _, count in rest))]
    return ordered[::-1]

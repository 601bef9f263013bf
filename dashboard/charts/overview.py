"""The overview's figures: error rate, throughput, latency, and the dead letters that wait."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from producer_core.dashboard.charts.chart import (
    RenderedChart,
    Sums,
    blank,
    decades,
    ends,
    line,
    or_sentence,
    others,
    rendered,
    sentence,
    top,
    topics,
)
from producer_core.dashboard.queries import QUANTILES, OverviewPage, Point
from producer_core.dashboard.theme import COLOURS
from producer_core.dashboard.wording import CUSTOM, milliseconds, short

_LATENCY = ("#059669", "#0891b2", "#7c3aed", "#db2777")
_DECADES = range(-1, 7)  # of milliseconds


@dataclass(frozen=True)
class OverviewLines:
    """What the lines of the overview are drawn from, without what would change nothing in them."""

    window: str
    since: int
    step: int
    now: float
    series: tuple[Point, ...]
    percentiles: tuple[tuple[int, tuple[float | None, ...]], ...]


def lines_of(page: OverviewPage) -> OverviewLines:
    end = ends(page.now, page.step)
    series = tuple(point for point in page.series if point.at < end)
    return OverviewLines(
        page.window,
        page.since,
        page.step,
        end,
        series,
        tuple(one for one in page.percentiles if one[0] < end),
    )


@lru_cache(maxsize=16)
def overview_lines(lines: OverviewLines) -> tuple[RenderedChart, RenderedChart, RenderedChart]:
    """Error rate, throughput and latency, drawn once however many look: until a window is over they stay as they are."""
    return rendered(error_rate(lines)), rendered(throughput(lines)), rendered(latency(lines))


def throughput(page: OverviewPage | OverviewLines) -> Any:
    """Acknowledged messages a second, by topic."""
    figure = blank(_revision(page))
    for topic, sums, colour in topics(page, lambda point: (point.acknowledged, point.dead)):

        def rate(at: int, sums: Sums = sums) -> float:
            seconds, acknowledged, _ = sums.get(at, (1.0, 0, 0))
            return acknowledged / seconds

        line(figure, topic, page, rate, "%{y:,.1f} /s", colour)
    figure.update_yaxes(range=[0, top(figure, least=1)])
    return or_sentence(figure, page, "Nothing was acknowledged in this range.")


def error_rate(page: OverviewPage | OverviewLines) -> Any:
    """Messages that died, as a share of those settled, by topic; nothing where a topic settled nothing."""
    figure = blank(_revision(page))
    for topic, sums, colour in topics(page, lambda point: (point.dead, point.acknowledged)):

        def share(at: int, sums: Sums = sums) -> float | None:
            _, acknowledged, dead = sums.get(at, (1.0, 0, 0))
            return 100 * dead / (dead + acknowledged) if dead + acknowledged else None

        line(figure, topic, page, share, "%{y:.2f} %", colour)
    figure.update_yaxes(range=[0, top(figure, least=5)], ticksuffix=" %")
    return or_sentence(figure, page, "Nothing was settled in this range.")


def latency(page: OverviewPage | OverviewLines) -> Any:
    """Percentiles from merged histograms, in milliseconds on a logarithmic axis."""
    figure = blank(_revision(page))
    by_window = dict(page.percentiles)
    for place, quantile in enumerate(QUANTILES):

        def value(at: int, place: int = place) -> float | None:
            found = by_window.get(at, (None,) * len(QUANTILES))[place]
            return None if found is None else 1000 * found

        line(figure, f"p{100 * quantile:g}", page, value, "%{y:,.3~r} ms", _LATENCY[place])
    figure.update_yaxes(
        type="log",
        range=decades(figure),
        tickvals=[10.0**power for power in _DECADES],
        ticktext=[milliseconds(10.0 ** (power - 3)).replace(".0 ", " ") for power in _DECADES],
    )
    return or_sentence(figure, page, "No latency was measured in this range.")


def _revision(page: OverviewPage | OverviewLines) -> str:
    """Another range is another look: zoom is not kept from one to the next."""
    return f"{page.since}" if page.window == CUSTOM else page.window


def waiting(counts: Mapping[str, int], empty: str, *, beside: Iterable[str] = ()) -> Any:
    """Dead letters that wait, as bars, the longest on top; what has no room is added up in the last.

    `beside`: the names of a chart next to this one, so that the bars of both begin at the same place.
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
    return figure if ordered else sentence(figure, empty)


_BARS = 5


def _with_others(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) > _BARS:
        rest = ordered[_BARS - 1 :]
        ordered = [*ordered[: _BARS - 1], (others(len(rest)), sum(count for _, count in rest))]
    return ordered[::-1]

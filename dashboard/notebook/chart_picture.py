"""Draw the charts of the monitor side by side as one standalone SVG document, with a real time axis."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Iterator

from producer_core.dashboard.charts.small import Axis, SmallChart
from producer_core.dashboard.notebook.widget_state import WidgetState

WIDTH = 720
_GAP, _LEFT, _TOP, _PLOT, _LEGEND_LINE = 18, 42, 36, 84, 14
_GREY = "#7f7f7f"
_CHARACTER = 5.7
"""The approximate width of a character of the legend, in pixels."""
_SPACINGS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800,
             259_200, 604_800)  # fmt: skip
"""The distances of the ticks of a time axis, in seconds."""
_TICKS = 3


def height(state: WidgetState) -> int:
    """Return the height of the picture, which depends on the longest legend."""
    lines = max((len(list(_rows(chart, _width(state)))) for chart in state.charts), default=0)
    return _TOP + _PLOT + 22 + _LEGEND_LINE * lines


def picture(state: WidgetState) -> str:
    """Return the SVG document."""
    width, tall = _width(state), height(state)
    charts = "".join(
        f"<g transform='translate({place * (width + _GAP):.1f} 0)'>{''.join(_chart(chart, state, width))}</g>"
        for place, chart in enumerate(state.charts)
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {tall}' width='{WIDTH}' height='{tall}'>"
        f"<title>{html.escape(state.caption)}</title><g fill='{_GREY}' font-size='10' font-family='sans-serif'>{charts}</g></svg>"
    )


def time_ticks(since: float, until: float, *, most: int = _TICKS) -> list[tuple[float, str]]:
    """Return whole local times between two moments with their texts, such as 14:05 or 27 Nov."""
    spacing = next((one for one in _SPACINGS if (until - since) / one <= most), _SPACINGS[-1])
    shift = time.localtime(since).tm_gmtoff
    first = math.ceil((since + shift) / spacing) * spacing - shift
    form = "%H:%M:%S" if spacing < 60 else "%H:%M" if spacing < 43_200 else "%-d %b"
    ats = range(int(first), int(until) + 1, spacing)
    return [(float(at), time.strftime(form, time.localtime(at))) for at in ats]


def _width(state: WidgetState) -> float:
    number = max(1, len(state.charts))
    return (WIDTH - _GAP * (number - 1)) / number


def _chart(chart: SmallChart, state: WidgetState, width: float) -> Iterator[str]:
    yield f"<text y='11' font-size='11'>{html.escape(chart.title)}</text>"
    yield f"<text y='28' font-size='15' font-weight='600'>{html.escape(chart.value)}</text>"
    bottom, plot = _TOP + _PLOT, width - _LEFT
    if chart.empty:
        yield f"<text x='{width / 2:.1f}' y='{_TOP + _PLOT / 2:.1f}' text-anchor='middle'>{html.escape(chart.empty)}</text>"
        return
    for value, label in chart.axis.ticks:
        y = _y(chart.axis, value)
        yield f"<path d='M{_LEFT} {y:.1f}H{width:.1f}' stroke='{_GREY}' stroke-opacity='.25'/>"
        yield f"<text x='{_LEFT - 5}' y='{y + 3:.1f}' text-anchor='end'>{html.escape(label)}</text>"
    number = len(chart.lines[0].values)
    for at, label in time_ticks(state.since, state.since + number * state.step):
        x = _LEFT + plot * (at - state.since) / (number * state.step)
        yield f"<path d='M{x:.1f} {bottom}v4' stroke='{_GREY}'/>"
        yield f"<text x='{min(x, width - 18):.1f}' y='{bottom + 15}' text-anchor='middle'>{label}</text>"
    yield f"<path d='M{_LEFT} {bottom}H{width:.1f}' stroke='{_GREY}'/>"
    for line in chart.lines:
        path = "".join(_paths(chart.axis, line.values, plot))
        yield f"<path d='{path}' fill='none' stroke='{line.colour}' stroke-width='1.6'/>" if path else ""
    for row, entries in enumerate(_rows(chart, width)):
        for x, name, colour in entries:
            y = bottom + 32 + row * _LEGEND_LINE
            yield f"<circle cx='{x + 4:.1f}' cy='{y - 3.5:.1f}' r='3.5' fill='{colour}'/>"
            yield f"<text x='{x + 11:.1f}' y='{y}'>{html.escape(name)}</text>"


def _y(axis: Axis, value: float) -> float:
    low, high = (math.log10(axis.low), math.log10(axis.high)) if axis.log else (axis.low, axis.high)
    at = math.log10(max(value, axis.low)) if axis.log else value
    return _TOP + _PLOT * (1 - (at - low) / ((high - low) or 1.0))


def _paths(axis: Axis, values: tuple[float | None, ...], plot: float) -> Iterator[str]:
    """Yield a path for each run without a gap; a single value becomes a short dash."""
    step, run = plot / max(1, len(values)), list[str]()
    for place, value in enumerate((*values, None)):
        if value is not None:
            run.append(f"{_LEFT + (place + 0.5) * step:.1f} {_y(axis, value):.1f}")
        elif run:
            yield f"M{'L'.join(run)}" if len(run) > 1 else f"M{run[0]}h{max(step / 2, 4):.1f}"
            run = []


def _rows(chart: SmallChart, width: float) -> Iterator[list[tuple[float, str, str]]]:
    """Yield the rows of the legend, each with the positions, names and colors of its entries."""
    row, x = list[tuple[float, str, str]](), 0.0
    for line, name in zip(chart.lines, chart.legend, strict=True):
        wide = 22 + _CHARACTER * len(name)
        if row and x + wide > width:
            yield row
            row, x = [], 0.0
        row.append((x, name, line.colour))
        x += wide
    if row:
        yield row

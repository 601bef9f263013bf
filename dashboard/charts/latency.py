"""Figures of the latency page: percentiles, distribution, parts of the latency, and round trip by broker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from producer_core.dashboard.charts.chart import blank, decades, message, mode, or_message, top
from producer_core.dashboard.queries import LATENCY_QUANTILES, Heat, LatencyPage, TimeSpent
from producer_core.dashboard.theme import COLOURS, PERCENTILE_COLOURS
from producer_core.dashboard.wording import milliseconds, percent, plural, short

PARTS: tuple[tuple[str, str, Callable[[TimeSpent], float | None]], ...] = (
    ("Client queue", "#2563eb", lambda spent: spent.queue),
    ("librdkafka's send queue", "#0891b2", lambda spent: spent.outbuf),
    ("Network and broker", "#d97706", lambda spent: spent.rtt),
    ("Retries and reports", "#94a3b8", lambda spent: spent.rest),
)
_THROTTLE = "#dc2626"
_SHORT = 10  # seconds
_DECADES = range(-3, 7)  # of milliseconds
_FAINT = [[0, "rgba(37,99,235,0.10)"], [0.15, "rgba(37,99,235,0.45)"], [1, "rgba(37,99,235,1)"]]


def quantile_name(quantile: float) -> str:
    return f"p{100 * quantile:g}"


def percentiles(page: LatencyPage) -> Any:
    """Return percentiles of merged histograms, in milliseconds on a logarithmic axis."""
    figure = blank(page.window)
    by_window = {one.at: one.found for one in page.percentiles}
    for place, quantile in enumerate(LATENCY_QUANTILES):
        found = [(at, by_window[at][place] if at in by_window else None) for at in _windows(page)]
        _line(figure, quantile_name(quantile), found, PERCENTILE_COLOURS[place])
    _milliseconds(figure, decades(figure))
    return or_message(figure, page, "No latency data in this range.")


def heat(page: LatencyPage) -> Any:
    """Return the distribution as a heatmap: a darker cell is a larger share of the window's messages."""
    figure = blank(page.window)
    figure.update_layout(hovermode="closest", showlegend=False)
    if not page.heat:
        return message(figure, "No latency data in this range.")
    lows = sorted({cell.low for cell in page.heat})
    rows = _rows(lows[0], max(cell.high for cell in page.heat), page.heat[0])
    windows = list(range(page.since, int(page.now) + page.step, page.step))
    shares: list[list[float | None]] = [[None] * len(windows) for _ in rows[1:]]
    texts = [[""] * len(windows) for _ in rows[1:]]
    for cell in page.heat:
        row = min(range(len(rows) - 1), key=lambda number: abs(rows[number] - cell.low))
        column = (cell.at - page.since) // page.step
        if 0 <= column < len(windows):
            shares[row][column] = 100 * cell.share**0.5  # the square root keeps small shares visible
            texts[row][column] = _cell(cell)
    figure.add_heatmap(
        x=[_time(at) for at in windows],
        y=[1000 * row for row in rows],
        z=shares,
        text=texts,
        hovertemplate="%{x|%H:%M:%S} UTC<br>%{text}<extra></extra>",
        colorscale=_FAINT,
        zmin=0,
        zmax=100,
        showscale=False,
        xgap=0,
        ygap=0,
    )
    _milliseconds(figure, None)
    figure.update_yaxes(ticks="")
    figure.update_xaxes(ticks="", range=[_time(page.since), _time(page.now)])
    return figure


def time_spent(page: LatencyPage) -> Any:
    """Return the mean parts of the latency as stacked bars; throttling is contained in them and drawn as a line."""
    figure = blank(page.window)
    by_window = {one.at: one for one in page.spent}
    windows = _windows(page)
    for name, colour, value in PARTS:
        figure.add_bar(
            x=[_time(at) for at in windows],
            y=[_in_ms(value(by_window[at])) if at in by_window else None for at in windows],
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="%{y:,.2~f} ms",
            offset=0,
            width=1000 * page.step,
        )
    highest = max(
        (sum(part(one) or 0.0 for _, _, part in PARTS) for one in page.spent),
        default=0.0,
    )
    if any(one.throttle for one in page.spent):
        found = [(at, by_window[at].throttle if at in by_window else None) for at in windows]
        _line(figure, "including throttling", found, _THROTTLE)
    figure.update_layout(barmode="stack", bargap=0, legend={"traceorder": "normal"})
    figure.update_yaxes(range=[0, max(1.0, 1080 * highest, top(figure, least=1))], ticksuffix=" ms")
    return or_message(figure, page, "No client statistics in this range.")


def rtt_by_broker(page: LatencyPage) -> Any:
    """Return the mean round trip of a request, by broker."""
    figure = blank(page.window)
    for place, (name, means) in enumerate(sorted(page.rtt_by_broker.items())):
        found = [(at, means.get(at)) for at in _windows(page)]
        _line(figure, short(name, 34), found, COLOURS[place % len(COLOURS)])
    figure.update_yaxes(range=[0, top(figure, least=1)], ticksuffix=" ms")
    return or_message(figure, page, "No broker responses in this range.")


def _windows(page: LatencyPage) -> list[int]:
    """Return the windows of the range.

    With short windows, the current one is left out, because messages in flight would show as a dip.
    """
    ends = int(page.now) if page.step > _SHORT else int(page.now) // page.step * page.step
    return list(range(page.since, ends, page.step))


def _line(figure: Any, name: str, found: list[tuple[int, float | None]], colour: str) -> None:
    values = [_in_ms(value) for _, value in found]
    figure.add_scatter(
        x=[_time(at) for at, _ in found],
        y=values,
        name=name,
        mode=mode(values),
        marker={"size": 3},
        connectgaps=False,
        hovertemplate="%{y:,.3~r} ms",
        line={"width": 2, "color": colour},
    )


def _milliseconds(figure: Any, powers: list[float] | None) -> None:
    figure.update_yaxes(
        type="log",
        range=powers,
        tickvals=[10.0**power for power in _DECADES],
        ticktext=[milliseconds(10.0 ** (power - 3)).replace(".0 ", " ") for power in _DECADES],
    )


def _rows(low: float, high: float, cell: Heat) -> list[float]:
    """Return the bounds of the heatmap's rows, each as high as `cell` on the logarithmic axis."""
    factor = cell.high / cell.low
    bounds = [low]
    while bounds[-1] < high * 0.999:
        bounds.append(bounds[-1] * factor)
    return bounds


def _cell(cell: Heat) -> str:
    span = f"{milliseconds(cell.low)} to {milliseconds(cell.high)}"
    return f"{span}: {plural(cell.count, 'message')}, {percent(cell.share)}"


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)

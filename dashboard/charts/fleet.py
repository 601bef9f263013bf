"""Figures of the fleet page: combined latency percentiles, and each producer by rate and latency."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from producer_core.dashboard.charts.chart import blank, decades, message, mode, or_message
from producer_core.dashboard.charts.latency import quantile_name
from producer_core.dashboard.queries.fleet import TROUBLED, Fleet, Member
from producer_core.dashboard.queries.latency import LATENCY_QUANTILES
from producer_core.dashboard.theme import PERCENTILE_COLOURS
from producer_core.dashboard.wording import milliseconds, rate, short

FEWEST_DOTS = 3
"""The fewest producers that are compared; among two, neither is an outlier."""
_SHORT = 10  # seconds
_DECADES = range(-3, 7)  # of milliseconds
_HEALTHY, _TROUBLED, _CLOSED = "#2563eb", "#dc2626", "#94a3b8"


def fleet_percentiles(page: Fleet) -> Any:
    """Return percentiles of the merged histograms of all producers, in milliseconds on a logarithmic axis."""
    figure = blank(page.window)
    by_window = {one.at: one.found for one in page.percentiles}
    ends = int(page.now) if page.step > _SHORT else int(page.now) // page.step * page.step
    ats = range(page.since, ends, page.step)
    for place, quantile in enumerate(LATENCY_QUANTILES):
        found = [by_window[at][place] if at in by_window else None for at in ats]
        figure.add_scatter(
            x=[datetime.fromtimestamp(at, UTC) for at in ats],
            y=[None if value is None else 1000 * value for value in found],
            name=quantile_name(quantile),
            mode=mode(found),
            marker={"size": 3},
            connectgaps=False,
            hovertemplate="%{y:,.3~r} ms",
            line={"width": 2, "color": PERCENTILE_COLOURS[place]},
        )
    _milliseconds(figure, "yaxis")
    figure.update_yaxes(range=decades(figure))
    return or_message(figure, page, "No latency data in this range.")


def comparable(page: Fleet) -> bool:
    """Return whether enough running producers delivered in the range to compare them."""
    running = [member for member in page.members if member.state not in ("closed", "gone")]
    return sum(member.p99 is not None for member in running) >= FEWEST_DOTS


def spread(page: Fleet) -> Any:
    """Return a dot per delivering producer, by rate and p99, so that outliers stand out among at least three."""
    figure = blank(page.window)
    drawn = [member for member in page.members if member.p99 is not None and member.rate > 0]
    if len(drawn) < FEWEST_DOTS:
        return message(figure, "Fewer than three producers are delivering.")
    kinds = (
        (
            "Healthy",
            _HEALTHY,
            "circle",
            [one for one in drawn if one.state not in (*TROUBLED, "closed", "gone")],
        ),
        ("With problems", _TROUBLED, "diamond", [one for one in drawn if one.troubled]),
        ("Closed", _CLOSED, "circle-open", [one for one in drawn if one.state in ("closed", "gone")]),
    )
    for name, colour, symbol, members in kinds:
        if members:
            _dots(figure, name, colour, symbol, members)
    figure.update_layout(hovermode="closest", showlegend=True)
    _milliseconds(figure, "yaxis")
    figure.update_yaxes(range=_whole([1000 * (one.p99 or 0.0) for one in drawn]))
    figure.update_xaxes(
        type="log",
        tickformat="~s",
        hoverformat=None,
        ticksuffix="/s",
        dtick=1,
        range=_whole([one.rate for one in drawn]),
    )
    return figure


def _whole(values: Sequence[float]) -> list[float]:
    """Return whole decades around all values, so that each axis has a label at both ends."""
    logs = [math.log10(max(value, 1e-3)) for value in values]
    least, most = math.floor(min(logs)), math.ceil(max(logs))
    return [least, most if most > least else least + 1]


def _dots(figure: Any, name: str, colour: str, symbol: str, members: Sequence[Member]) -> None:
    figure.add_scatter(
        x=[member.rate for member in members],
        y=[1000 * (member.p99 or 0.0) for member in members],
        text=[_label(member) for member in members],
        name=name,
        mode="markers",
        marker={"size": 8, "color": colour, "symbol": symbol, "opacity": 0.75},
        hovertemplate="%{text}<extra></extra>",
    )


def _label(member: Member) -> str:
    """Return the tooltip; the names are escaped because Plotly interprets markup in them."""
    producer = html.escape(f"{short(member.name)} on {short(member.host)}", quote=False)
    return f"{producer}<br>{rate(member.rate)}, p99 {milliseconds(member.p99)}"


def _milliseconds(figure: Any, axis: str) -> None:
    figure.update_layout(
        {
            axis: {
                "type": "log",
                "tickvals": [10.0**power for power in _DECADES],
                "ticktext": [milliseconds(10.0 ** (power - 3)).replace(".0 ", " ") for power in _DECADES],
            }
        }
    )

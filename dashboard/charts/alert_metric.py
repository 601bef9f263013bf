"""The figure of an alert's metric over time, with its threshold."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from producer_core.alerts.conditions import limit
from producer_core.dashboard.charts.chart import blank, mode, or_message, values
from producer_core.dashboard.queries.alert_metric import AlertMetric

_LINES = ("#2563eb", "#0891b2")
_THRESHOLD = "#dc2626"
_SHARES = ("error_rate", "attempt_failure_rate")


def alert_metric(page: AlertMetric) -> Any:
    """Return a line for each window of the rule, and the threshold as a dashed line."""
    figure = blank(f"{page.metric} {page.since}")
    scale, suffix = _unit(page)
    for place, (window, found) in enumerate(page.lines.items()):
        numbers = [None if value is None else scale * value for _, value in found]
        figure.add_scatter(
            x=[_time(at) for at, _ in found],
            y=numbers,
            name=html.escape(f"over {window}"),
            mode=mode(numbers),
            marker={"size": 3},
            connectgaps=False,
            hovertemplate=f"%{{y:,.3~r}}{suffix}",
            line={"width": 2, "color": _LINES[place % len(_LINES)]},
        )
    or_message(figure, page, "No statistics of this time are in the store.")
    if values(figure):
        _threshold(figure, page, scale, suffix)
    return figure


def marks(page: AlertMetric) -> list[dict[str, Any]]:
    """Return the band for which the alert fires."""
    begin, end = (min(max(at, page.since), page.now) for at in (page.fired_at, page.ended_at))
    return [
        {
            "type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "x0": _time(begin).isoformat(),
            "x1": _time(end).isoformat(), "line": {"width": 0}, "fillcolor": "rgba(220,38,38,0.10)",
            "label": {"text": "firing", "textangle": 0, "font": {"size": 10}, "padding": 2, "textposition": "top left"},
        }
    ]  # fmt: skip


def _threshold(figure: Any, page: AlertMetric, scale: float, suffix: str) -> None:
    bound = scale * page.threshold
    figure.add_scatter(
        x=[_time(page.since), _time(page.now)],
        y=[bound, bound],
        name=f"threshold: {'above' if page.above else 'below'} {limit(page.metric, page.threshold)}",
        mode="lines",
        hovertemplate=f"%{{y:,.3~r}}{suffix}",
        line={"width": 1.5, "color": _THRESHOLD, "dash": "dash"},
    )
    figure.update_layout(showlegend=True)
    figure.update_yaxes(range=[0, 1.15 * max(_numbers(figure))], ticksuffix=suffix)


def _numbers(figure: Any) -> Sequence[float]:
    return [*values(figure), 1e-9]


def _unit(page: AlertMetric) -> tuple[float, str]:
    """Return the factor from the value to its unit on the axis, and the unit."""
    if page.metric in _SHARES:
        return 100.0, "%"
    return (1.0, " s") if page.metric.startswith("latency_") else (1.0, "")


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)

"""Building blocks of the charts: the empty figure, lines with gaps, and a message for missing data."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from producer_core.dashboard.charts.lines import ChartLine, Measured, Ranged, windows
from producer_core.dashboard.charts.lines import ends as ends
from producer_core.dashboard.charts.lines import others as others
from producer_core.dashboard.wording import short

HEIGHT = 230


class RenderedChart(NamedTuple):
    """Holds a figure as JSON, and its height in pixels."""

    spec: str
    height: int


def rendered(figure: Any) -> RenderedChart:
    return RenderedChart(figure.to_json(), figure.layout.height)


_TIMES = (
    {"dtickrange": [None, 59_999], "value": "%H:%M:%S"},
    {"dtickrange": [60_000, 43_200_000], "value": "%H:%M"},
    {"dtickrange": [43_200_000, None], "value": "%-d %b"},
)
"""The time format of the axis, by the distance of its ticks in milliseconds."""


def blank(revision: str) -> Any:
    """Return an empty figure.

    The zoom is kept while `revision` stays the same, until another range is selected. All line charts have the same
    left margin, so that the time axes of stacked charts align.
    """
    import plotly.graph_objects as go  # here, because a notebook draws the lines without plotly

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


def line(figure: Any, page: Measured, drawn: ChartLine, hover: str) -> None:
    """Add a line with a gap where no producer wrote statistics."""
    figure.add_scatter(
        x=[datetime.fromtimestamp(at, UTC) for at in windows(page)],
        y=list(drawn.values),
        name=html.escape(short(drawn.name)),
        mode=mode(drawn.values),
        marker={"size": 3},
        connectgaps=False,
        hovertemplate=hover,
        line={"width": 2, "color": drawn.colour},
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


def values(figure: Any) -> list[float]:
    return [y for trace in figure.data for y in trace.y if y is not None]


def decades(figure: Any) -> list[float]:
    """Return the powers of ten around all values, so that the axis has labels and stays stable."""
    return powers_of_ten(values(figure))


def powers_of_ten(found: Sequence[float]) -> list[float]:
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

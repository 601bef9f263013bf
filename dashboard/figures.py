"""The figures: values in, Plotly figures out; nothing else is read and nothing is invented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from dashboard.data import QUANTILES, Overview, Point
from producer_core.histogram import RELATIVE_ERROR

_HEIGHT = 230
_SHORT = 10  # seconds
_LATENCY = ("#059669", "#7c3aed", "#db2777")  # not a topic's


def throughput(page: Overview) -> Any:
    """Acknowledged messages a second, by topic."""
    figure = _figure("messages / s", page.window)
    for topic, points in _by_topic(page.series).items():
        values = {point.at: point.acknowledged / _covered(point, page.now) for point in points}
        _line(figure, topic, page, lambda at, values=values: values.get(at, 0.0), "%{y:,.1f} /s")
    return _or_sentence(figure, page, "Nothing was acknowledged in this range.")


def error_rate(page: Overview) -> Any:
    """Messages that died, as a share of those settled, by topic; nothing where a topic settled nothing."""
    figure = _figure("failed, %", page.window)
    for topic, points in _by_topic(page.series).items():
        settled = {point.at: (point.dead, point.dead + point.acknowledged) for point in points}

        def share(at: int, settled: Mapping[int, tuple[int, int]] = settled) -> float | None:
            dead, total = settled.get(at, (0, 0))
            return 100 * dead / total if total else None

        _line(figure, topic, page, share, "%{y:.2f} %")
    figure.update_yaxes(range=[0, _top(figure, least=5)])
    return _or_sentence(figure, page, "Nothing was settled in this range.")


def latency(page: Overview) -> Any:
    """Percentiles from merged histograms, in milliseconds on a logarithmic axis."""
    figure = _figure("ms", page.window)
    by_window = dict(page.percentiles)
    for place, quantile in enumerate(QUANTILES):

        def value(at: int, place: int = place) -> float | None:
            found = by_window.get(at, (None,) * len(QUANTILES))[place]
            return None if found is None else 1000 * found

        _line(
            figure,
            f"p{100 * quantile:g}",
            page,
            value,
            f"%{{y:,.3~r}} ms (±{100 * RELATIVE_ERROR:.1f} %)",
            _LATENCY[place],
        )
    figure.update_yaxes(type="log", dtick=1, tickformat=",~r")
    return _or_sentence(figure, page, "No latency was measured in this range.")


def waiting(counts: Mapping[str, int], empty: str) -> Any:
    """Dead letters that wait, as bars, the longest on top."""
    figure = _figure("", "")
    ordered = sorted(counts.items(), key=lambda item: item[1])[-8:]
    figure.add_bar(
        x=[count for _, count in ordered], y=[name for name, _ in ordered], orientation="h",
        text=[f"{count:,}" for _, count in ordered], textposition="auto", hovertemplate="%{y}: %{x:,}<extra></extra>",
    )  # fmt: skip
    figure.update_layout(
        height=max(120, 60 + 28 * len(ordered)), hovermode="closest", showlegend=False, bargap=0.4
    )
    figure.update_yaxes(automargin=True, showgrid=False)
    figure.update_xaxes(rangemode="tozero", showticklabels=False, showgrid=False)
    return figure if ordered else _sentence(figure, empty)


def _figure(unit: str, revision: str) -> Any:
    """Zoom is kept while `revision` is the same: until another range is chosen."""
    figure = go.Figure()
    figure.update_layout(
        height=_HEIGHT,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        uirevision=revision,
    )
    figure.update_xaxes(automargin=True, showgrid=False)
    figure.update_yaxes(
        automargin=True, title={"text": unit, "standoff": 4}, rangemode="tozero", zeroline=False
    )
    return figure


def _line(figure: Any, name: str, page: Overview, value: Any, hover: str, colour: str | None = None) -> None:
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
        name=name,
        mode="lines+markers",
        marker={"size": 3},
        connectgaps=False,
        hovertemplate=hover,
        line={"width": 2, "color": colour},
    )


def _covered(point: Point, now: float) -> float:
    """The seconds of a window that have passed."""
    return max(1.0, min(point.seconds, now - point.at))


def _by_topic(series: Sequence[Point]) -> dict[str, list[Point]]:
    topics: dict[str, list[Point]] = {}
    for point in series:
        topics.setdefault(point.topic, []).append(point)
    return dict(sorted(topics.items()))


def _top(figure: Any, least: float) -> float:
    highest = max((y for trace in figure.data for y in trace.y if y is not None), default=0.0)
    return max(least, 1.08 * highest)


def _or_sentence(figure: Any, page: Overview, text: str) -> Any:
    drawn = any(y is not None for trace in figure.data for y in trace.y)
    figure.update_xaxes(
        range=[datetime.fromtimestamp(page.since, UTC), datetime.fromtimestamp(page.now, UTC)]
    )
    return figure if drawn else _sentence(figure, text)


def _sentence(figure: Any, text: str) -> Any:
    figure.data = []
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=text, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", opacity=0.7)
    return figure

"""Mark events on a time chart: bands for outages and replays, lines for starts of producers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from producer_core.dashboard.queries.chart_events import ChartEvent

_FILLS = {"outage": "rgba(220,38,38,0.16)", "replay": "rgba(37,99,235,0.14)"}
_LABELS = {"outage": "no broker", "replay": "replay", "start": "producer started"}
_LINE = {"color": "rgba(100,116,139,0.9)", "width": 1, "dash": "dot"}


def shapes(events: Sequence[ChartEvent]) -> list[dict[str, Any]]:
    """Return the events as Plotly shapes over the whole height; of each kind, the latest has the label."""
    latest = {event.kind: place for place, event in enumerate(events)}
    return [_shape(event, labelled=latest[event.kind] == place) for place, event in enumerate(events)]


def _shape(event: ChartEvent, *, labelled: bool) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "type": "rect" if event.kind in _FILLS else "line",
        "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "x0": _time(event.begin), "x1": _time(event.end),
        "line": {"width": 0} if event.kind in _FILLS else _LINE,
    }  # fmt: skip
    if event.kind in _FILLS:
        shape["fillcolor"] = _FILLS[event.kind]
    if labelled:
        shape["label"] = {"text": _LABELS[event.kind], "textangle": 0, "font": {"size": 10}, "padding": 2} | (
            {"textposition": "top left"}
            if event.kind in _FILLS
            else {"textposition": "start", "xanchor": "left", "yanchor": "bottom"}
        )
    return shape


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")

"""Mark events on a time chart: bands for outages and replays, lines for starts of producers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from producer_core.dashboard.queries.chart_events import ChartEvent

_FILLS = {
    "outage": "rgba(220,38,38,0.16)", "partial": "rgba(220,38,38,0.07)", "replay": "rgba(37,99,235,0.14)",
}  # fmt: skip
_LABELS = {
    "outage": "no broker", "partial": "partly no broker", "replay": "replay", "start": "producer started",
}  # fmt: skip
_LINE = {"color": "rgba(100,116,139,0.9)", "width": 1, "dash": "dot"}
_LABEL_WIDTH = 0.25
"""The share of a narrow chart's width that a label covers."""


def shapes(events: Sequence[ChartEvent], since: float, until: float) -> list[dict[str, Any]]:
    """Return the events as Plotly shapes over the whole height of a chart of this range.

    The latest event of a kind has a label, and so does each earlier one whose label does not cover a later label. A
    label at the right edge ends at its event.
    """
    width = _LABEL_WIDTH * (until - since)
    labelled = _labelled(events, width, until)
    return [
        _shape(event, labelled=place in labelled, at_edge=_is_at_edge(event, width, until))
        for place, event in enumerate(events)
    ]


def _labelled(events: Sequence[ChartEvent], width: float, until: float) -> set[int]:
    """Return the places of the events with a label: of each kind, the latest ones that are far enough apart."""
    free: dict[str, float] = {}
    found = set()
    for place, event in sorted(enumerate(events), key=lambda one: one[1].begin, reverse=True):
        begin, end = (event.begin, event.begin + width)
        if _is_at_edge(event, width, until):
            begin, end = event.end - width, event.end
        if end <= free.get(event.kind, end):
            free[event.kind] = begin
            found.add(place)
    return found


def _is_at_edge(event: ChartEvent, width: float, until: float) -> bool:
    return event.begin + width > until


def _shape(event: ChartEvent, *, labelled: bool, at_edge: bool) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "type": "rect" if event.kind in _FILLS else "line",
        "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "x0": _time(event.begin), "x1": _time(event.end),
        "line": {"width": 0} if event.kind in _FILLS else _LINE,
    }  # fmt: skip
    if event.kind in _FILLS:
        shape["fillcolor"] = _FILLS[event.kind]
    if labelled:
        side = "right" if at_edge else "left"
        shape["label"] = {"text": _label(event), "textangle": 0, "font": {"size": 10}, "padding": 2} | (
            {"textposition": f"top {side}"}
            if event.kind in _FILLS
            else {"textposition": "start", "xanchor": side, "yanchor": "bottom"}
        )
    return shape


def _label(event: ChartEvent) -> str:
    return _LABELS[event.kind] if event.count == 1 else f"{event.count:,} producers started"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")

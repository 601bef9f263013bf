"""The figure of a replay: the records that succeeded and failed over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from producer_core.dashboard.charts.chart import blank
from producer_core.dashboard.queries.replay_course import ReplayCourse
from producer_core.dashboard.theme import COLOURS
from producer_core.dashboard.wording import plural

HEIGHT = 180
_SUCCEEDED, _FAILED = COLOURS[0], COLOURS[1]
_SHORTEST = 5.0
"""The smallest range of the time axis, in seconds, so that its ticks have different texts."""


def course(found: ReplayCourse, revision: str) -> Any:
    """Return both numbers as curves that rise to their totals, below a line at the number of all records."""
    figure = blank(revision)
    ats = [_time(at) for at in found.ats]
    for name, counts, colour in (
        ("Succeeded", found.succeeded, _SUCCEEDED),
        ("Failed", found.failed, _FAILED),
    ):
        figure.add_scatter(
            x=ats,
            y=list(counts),
            name=name,
            mode="lines",
            hovertemplate="%{y:,}",
            line={"width": 2, "color": colour, "shape": "hv"},
            fill="tozeroy" if colour == _SUCCEEDED else None,
            fillcolor="rgba(37,99,235,0.10)",
        )
    figure.add_hline(
        y=found.total,
        line={"width": 1, "dash": "dot", "color": "rgba(100,116,139,0.9)"},
        annotation={"text": plural(found.total, "record"), "font": {"size": 11}},
        annotation_position="top right",
    )
    since, until = found.ats[0], found.ats[-1]
    figure.update_xaxes(range=[_time(since), _time(max(until, since + _SHORTEST))])
    figure.update_yaxes(range=[0, 1.2 * max(1, found.total)], tickformat=",d", nticks=4)
    figure.update_layout(height=HEIGHT)
    return figure


def described(found: ReplayCourse) -> str:
    """Return the text alternative of the curves."""
    return f"Records over time: {found.succeeded[-1]:,} succeeded, {found.failed[-1]:,} failed, of {found.total:,}"


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)

"""Figures of the errors page: failed attempts by code, message outcomes, and the trend of a group."""

from __future__ import annotations

import html
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from producer_core.dashboard.charts.chart import blank, message, or_message, others
from producer_core.dashboard.queries.error_groups import GroupPage
from producer_core.dashboard.queries.errors import ErrorsPage
from producer_core.dashboard.theme import COLOURS
from producer_core.dashboard.wording import count, short

SAVED, FAILED = "#059669", "#dc2626"
_MAX_SERIES = 8
_OTHERS = "#94a3b8"


def failed_attempts(page: ErrorsPage) -> Any:
    """Return failed attempts per window as bars stacked by code, with the rarest codes combined."""
    figure = blank(page.window)
    names = sorted(page.by_code)
    ranked = sorted(names, key=lambda code: (-sum(page.by_code[code].values()), code))
    shown = ranked if len(ranked) <= _MAX_SERIES else ranked[: _MAX_SERIES - 1]
    for code, colour in colours(sorted(shown)).items():
        _bars(figure, page.step, short(code, 34), page.by_code[code], colour)
    if rest := set(names) - set(shown):
        together: dict[int, int] = {}
        for code in rest:
            for at, number in page.by_code[code].items():
                together[at] = together.get(at, 0) + number
        _bars(figure, page.step, others(len(rest)), together, _OTHERS)
    return or_message(_stacked(figure), page, "No failed attempts in this range.")


def colours(codes: Sequence[str]) -> Mapping[str, str]:
    """Return a color per code that does not depend on the other codes, unless two codes would share one."""
    chosen: dict[str, str] = {}
    for code in codes:
        first = zlib.crc32(code.encode(errors="replace"))
        candidates = [COLOURS[(first + step) % len(COLOURS)] for step in range(len(COLOURS))]
        chosen[code] = next((colour for colour in candidates if colour not in chosen.values()), candidates[0])
    return chosen


def outcomes(page: ErrorsPage) -> Any:
    """Return the messages with failed attempts per window: acknowledged after a retry, or dead letters."""
    figure = blank(page.window)
    saved = {moment.at: moment.outcome.saved for moment in page.moments if moment.outcome.saved}
    dead = {moment.at: moment.outcome.dead for moment in page.moments if moment.outcome.dead}
    if saved:
        _bars(figure, page.step, "Acknowledged after a retry", saved, SAVED)
    if dead:
        _bars(figure, page.step, "Became dead letters", dead, FAILED)
    return or_message(_stacked(figure), page, "No failed messages in this range.")


def group_trend(page: GroupPage) -> Any:
    """Return the dead letters of a group over time: in the range, or since the beginning if the range has none."""
    group = page.inside or page.ever
    figure = blank(f"{group.fingerprint} {page.inside is None}")
    trend = group.trend
    ats = {
        int(trend.start + place * trend.width): number for place, number in enumerate(trend.counts) if number
    }
    if not ats:
        return message(figure, "No dead letters of this group in this store.")
    _bars(figure, max(1, int(trend.width)), "Dead letters", ats, FAILED)
    figure.update_layout(showlegend=False)
    end = trend.start + trend.width * len(trend.counts)
    figure.update_xaxes(range=[_time(trend.start), _time(end)])
    return figure


def _bars(figure: Any, step: int, name: str, counts: Mapping[int, int], colour: str) -> None:
    """Add bars; the name is escaped because Plotly interprets markup in names."""
    figure.add_bar(
        x=[_time(at) for at in sorted(counts)],
        y=[counts[at] for at in sorted(counts)],
        name=html.escape(name, quote=False),
        marker={"color": colour, "line": {"width": 0}},
        hovertemplate="%{y:,}",
        offset=0,
        width=1000 * step,
    )


def _stacked(figure: Any) -> Any:
    figure.update_layout(barmode="stack", bargap=0, legend={"traceorder": "normal"}, showlegend=True)
    figure.update_yaxes(rangemode="tozero", tickformat=",d")
    return figure


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def described(page: ErrorsPage) -> str:
    """Return the text alternative of the chart of codes."""
    most = sorted(page.by_code, key=lambda code: -sum(page.by_code[code].values()))[:3]
    listed = ", ".join(f"{code} {count(sum(page.by_code[code].values()))}" for code in most)
    return f"Failed attempts over time, by code: {listed}" if listed else "Failed attempts over time: none"

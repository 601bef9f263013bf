"""The errors page's figures: failed attempts by code, what became of messages, and how a group grew."""

from __future__ import annotations

import html
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from producer_core.dashboard.charts.chart import blank, or_sentence, others, sentence
from producer_core.dashboard.queries.error_groups import GroupPage
from producer_core.dashboard.queries.errors import ErrorsPage
from producer_core.dashboard.theme import COLOURS
from producer_core.dashboard.wording import count, short

SAVED, DIED = "#059669", "#dc2626"
_MOST = 8
_OTHERS = "#94a3b8"


def failed_attempts(page: ErrorsPage) -> Any:
    """Attempts that failed in each window, by code, one on top of the other; the rarest codes together."""
    figure = blank(page.window)
    names = sorted(page.by_code)
    ranked = sorted(names, key=lambda code: (-sum(page.by_code[code].values()), code))
    shown = ranked if len(ranked) <= _MOST else ranked[: _MOST - 1]
    for code, colour in colours(sorted(shown)).items():
        _bars(figure, page.step, short(code, 34), page.by_code[code], colour)
    if rest := set(names) - set(shown):
        together: dict[int, int] = {}
        for code in rest:
            for at, number in page.by_code[code].items():
                together[at] = together.get(at, 0) + number
        _bars(figure, page.step, others(len(rest)), together, _OTHERS)
    return or_sentence(_stacked(figure), page, "No attempt failed in this range.")


def colours(codes: Sequence[str]) -> Mapping[str, str]:
    """A colour for each code, which it keeps when others come and go; two that would share one are told apart."""
    chosen: dict[str, str] = {}
    for code in codes:
        first = zlib.crc32(code.encode(errors="replace"))
        ways = [COLOURS[(first + step) % len(COLOURS)] for step in range(len(COLOURS))]
        chosen[code] = next((colour for colour in ways if colour not in chosen.values()), ways[0])
    return chosen


def fates(page: ErrorsPage) -> Any:
    """Of the messages that failed: those acknowledged after a retry, and those that died."""
    figure = blank(page.window)
    saved = {moment.at: moment.fate.saved for moment in page.moments if moment.fate.saved}
    dead = {moment.at: moment.fate.dead for moment in page.moments if moment.fate.dead}
    if saved:
        _bars(figure, page.step, "Acknowledged after a retry", saved, SAVED)
    if dead:
        _bars(figure, page.step, "Died", dead, DIED)
    return or_sentence(_stacked(figure), page, "No message failed in this range.")


def group_trend(page: GroupPage) -> Any:
    """Deaths of one group in time; of the range, or of all time where nothing died in the range."""
    group = page.inside or page.ever
    figure = blank(f"{group.fingerprint} {page.inside is None}")
    trend = group.trend
    ats = {
        int(trend.start + place * trend.width): number for place, number in enumerate(trend.counts) if number
    }
    if not ats:
        return sentence(figure, "No dead letter of this group is here.")
    _bars(figure, max(1, int(trend.width)), "Died", ats, DIED)
    figure.update_layout(showlegend=False)
    end = trend.start + trend.width * len(trend.counts)
    figure.update_xaxes(range=[_time(trend.start), _time(end)])
    return figure


def _bars(figure: Any, step: int, name: str, counts: Mapping[int, int], colour: str) -> None:
    """Names are escaped: Plotly reads links and more in them."""
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
    """What the chart of codes shows, for who cannot see it."""
    most = sorted(page.by_code, key=lambda code: -sum(page.by_code[code].values()))[:3]
    listed = ", ".join(f"{code} {count(sum(page.by_code[code].values()))}" for code in most)
    return f"Failed attempts in time, by code: {listed}" if listed else "Failed attempts in time: none"

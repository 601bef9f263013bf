"""Read the state that the widget shows, as one value."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from producer_core._internal.masking import mask_or_hide
from producer_core.dashboard import queries, wording
from producer_core.dashboard.charts.overview import lines_of
from producer_core.dashboard.charts.small import SmallChart, small_charts
from producer_core.dashboard.charts.tile import tiles
from producer_core.dashboard.wording import alerts as alert_wording
from producer_core.dashboard.wording import dead_letters as letter_wording
from producer_core.diagnostics.incident.facts import IncidentFacts, incident_of
from producer_core.dlq import DeadLetters, Group
from producer_core.events import SAFE_VERDICTS
from producer_core.replay import runners
from producer_core.store import Store

WINDOWS = ("5 min", "15 min", "1 hour", "6 hours", "24 hours", "7 days")
DEFAULT = "5 min"

_TIMEOUT = 10.0
"""Seconds to wait for the store; a kernel may share a busy machine with its own cells."""
_FIGURES = ("Dead letters", "Pending")
"""The figures beside the charts, by their labels on the overview."""
_TOPICS = 8
_ALERTS = 3
_CAUSES = 6
_PRODUCERS = 4
_MAX_LINE = 240


@dataclass(frozen=True)
class AlertLine:
    """Holds a firing alert: its tone, its severity, age and text, and the advice."""

    tone: str
    text: str
    advice: str


@dataclass(frozen=True)
class FigureLine:
    """Holds a figure: its label, its value, and a note."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class CauseLine:
    """Holds a group of dead letters.

    `trend` counts them over time, oldest first, one count per `trend_step` seconds from `trend_since`; `trend_text` says
    over which time.
    """

    fingerprint: str
    count: int
    name: str
    error: str
    advice: str
    safe: bool
    trend: tuple[int, ...]
    trend_text: str
    trend_since: float
    trend_step: float


@dataclass(frozen=True)
class WidgetState:
    """Holds everything the widget shows.

    The charts have one value each `step` seconds from `since`. `until` limits actions to the dead letters shown, so that
    they skip later ones; None means that there are none.
    """

    sentence: str
    tone: str
    alerts: tuple[AlertLine, ...]
    charts: tuple[SmallChart, ...]
    since: int
    step: int
    figures: tuple[FigureLine, ...]
    window: str
    caption: str
    causes: tuple[CauseLine, ...]
    others: int
    dead: tuple[tuple[str, int], ...]
    dead_text: str
    dead_total: int
    producers: tuple[str, ...]
    until: float | None
    why_not: str
    as_of: str
    now: float

    def as_json(self) -> dict[str, Any]:
        """Return the state for the browser, which draws no course."""
        found = asdict(self)
        for chart in found["charts"]:
            del chart["course"]
        return found

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """Return label and value of each figure."""
        return (
            *((chart.title, chart.value) for chart in self.charts),
            *((one.label, one.value) for one in self.figures),
        )


def moment(
    store: Store,
    window: str = DEFAULT,
    now: float | None = None,
    *,
    view: queries.View | None = None,
) -> WidgetState:
    """Read the state from one consistent view of the store. The filters of `view` restrict it."""
    now = time.time() if now is None else now
    view = replace(view or queries.View(), window=window)
    if facts := incident_of(store):
        now, view = facts["exported_at"], _of_incident(view, facts)
    pending, dead_letters = view.dead_letters(), DeadLetters(store)
    with store.borrow(limit=_TIMEOUT):
        page = queries.overview(store, view, now)
        newest = dead_letters.find(pending, limit=1)
        groups = dead_letters.groups(pending, limit=_CAUSES)
        alive = len(runners(store, now))
    tone, sentence = wording.sentence(page.situation)
    charts, lines = small_charts(page), lines_of(page)
    total = sum(page.dead_by_topic.values())
    return WidgetState(
        sentence=mask_or_hide(sentence.strip()),
        tone=tone,
        alerts=tuple(_alert(alert, now) for alert in _urgent(page)[:_ALERTS]),
        charts=charts,
        since=lines.since,
        step=lines.step,
        figures=_figures(page),
        window=window,
        caption=_caption(charts, window),
        causes=tuple(map(_cause, groups)),
        others=max(0, total - sum(group.count for group in groups)),
        dead=tuple(page.dead_by_topic.items())[:_TOPICS],
        dead_text=_dead_text(page.dead_by_topic),
        dead_total=total,
        producers=_producers(page, now),
        until=math.nextafter(newest[0].failed_at, math.inf) if newest else None,
        why_not=wording.why_no_replay("dead", total, alive) or "",
        as_of=time.strftime("%H:%M:%S", time.localtime(now)),
        now=now,
    )


def _of_incident(view: queries.View, facts: IncidentFacts) -> queries.View:
    """Return the view of the range of an incident bundle, whatever range is selected."""
    return replace(
        view, window=wording.CUSTOM, start=math.floor(facts["since"]), end=math.ceil(facts["until"])
    )


def text(state: WidgetState) -> str:
    """Return the state as text for a terminal."""
    alerts = (f"{one.text} {one.advice}".strip() for one in state.alerts)
    numbers = ", ".join(f"{label} {value}" for label, value in state.numbers)
    sparks = (_spark(chart) for chart in state.charts)
    lines = (state.sentence, *alerts, numbers, *sparks, state.dead_text, *state.producers)
    return "\n".join([*filter(None, lines), f"As of {state.as_of}"])


def spark(values: tuple[float | None, ...], top: float, width: int = 60) -> str:
    """Return a chart of block characters, with gaps where no producer wrote statistics."""
    per_bin = -(-len(values) // width) or 1
    highest = [_highest(values[first : first + per_bin]) for first in range(0, len(values), per_bin)]
    return "".join(" " if one is None else _BLOCKS[_level(one, top)] for one in highest)


_BLOCKS = "▁▂▃▄▅▆▇█"
_FORMATS = {"rate": wording.rate, "percent": wording.percent, "milliseconds": wording.milliseconds}


def _level(value: float, top: float) -> int:
    return min(len(_BLOCKS) - 1, math.ceil((len(_BLOCKS) - 1) * value / top)) if top else 0


def _highest(values: tuple[float | None, ...]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _spark(chart: SmallChart) -> str:
    """Return the figure over the range in block characters; empty where it was never above zero."""
    top = _highest(chart.course)
    if not top:
        return ""
    return f"{chart.title:<11} {spark(chart.course, top)}  up to {_FORMATS[chart.unit](top)}"


def _urgent(page: queries.OverviewPage) -> list[Mapping[str, Any]]:
    """Return the alerts that need an action; the others describe internals of the client."""
    return [alert for alert in page.alerts if alert["severity"] != "info"]


def _alert(found: Mapping[str, Any], now: float) -> AlertLine:
    recovering = alert_wording.recovery_note(found, now)
    advice = "" if recovering else str(found["advice"] or "")
    line = wording.alert(found, now).removesuffix(advice).rstrip()
    tone = "quiet" if recovering else wording.TONES[found["severity"]]
    return AlertLine(tone, mask_or_hide(line), mask_or_hide(advice))


def _figures(page: queries.OverviewPage) -> tuple[FigureLine, ...]:
    found = {tile.label: tile for tile in tiles(page)}
    return tuple(
        FigureLine(
            label, found[label].value, ", ".join(filter(None, (found[label].change.text, found[label].note)))
        )
        for label in _FIGURES
    )


def _producers(page: queries.OverviewPage, now: float) -> tuple[str, ...]:
    """Return the state of each running producer, or of the one that ran last."""
    running = [row for row in page.producers if row["closed_at"] is None] or list(page.producers[:1])
    lines = [f"{row['client_id']}: {wording.producer_state(row, now)}" for row in running[:_PRODUCERS]]
    more = (
        [f"and {wording.plural(len(running) - _PRODUCERS, 'more producer')}"]
        if len(running) > _PRODUCERS
        else []
    )
    return tuple(mask_or_hide(line) for line in [*lines, *more])


def _caption(charts: tuple[SmallChart, ...], window: str) -> str:
    numbers = ", ".join(f"{chart.title} {chart.value}" for chart in charts)
    return f"{numbers}; charts of the last {window}."


def _cause(group: Group) -> CauseLine:
    doubtful = sum(count for verdict, count in group.verdicts.items() if verdict not in SAFE_VERDICTS)
    topics = ", ".join(group.topics[:3]) + (
        f" and {len(group.topics) - 3} more" if len(group.topics) > 3 else ""
    )
    return CauseLine(
        fingerprint=group.fingerprint,
        count=group.count,
        name=f"{group.code} on {topics}",
        error=_shortened(mask_or_hide(group.sample_text)),
        advice=_shortened(f"{group.meaning} {group.advice}".strip()),
        safe=not doubtful,
        trend=group.trend.counts,
        trend_text=letter_wording.trend(group.trend.counts, group.trend.width),
        trend_since=group.trend.start,
        trend_step=group.trend.width,
    )


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} …"


def _dead_text(by_topic: Any) -> str:
    named = [f"{topic} {count:,}" for topic, count in by_topic.items()]
    more = f", and {wording.plural(len(named) - _TOPICS, 'more topic')}" if len(named) > _TOPICS else ""
    return f"Dead letters: {', '.join(named[:_TOPICS])}{more}" if named else ""

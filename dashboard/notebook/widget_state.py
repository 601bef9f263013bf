"""Read the state that the widget shows, as one value."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import Any

from producer_core._internal.masking import mask_or_hide
from producer_core.dashboard import queries, wording
from producer_core.diagnostics.incident.facts import IncidentFacts, incident_of
from producer_core.dlq import DeadLetters, Group
from producer_core.events import SAFE_VERDICTS
from producer_core.replay import runners
from producer_core.store import Store

WINDOWS = ("5 min", "15 min", "1 hour", "6 hours", "24 hours", "7 days")
DEFAULT = "5 min"

_TIMEOUT = 10.0
"""Seconds to wait for the store; a kernel may share a busy machine with its own cells."""
_TOPICS = 8
_ALERTS = 3
_CAUSES = 6
_PRODUCERS = 4
_MAX_LINE = 240


@dataclass(frozen=True)
class CauseLine:
    """Holds a group of dead letters."""

    fingerprint: str
    count: int
    name: str
    error: str
    advice: str
    safe: bool


@dataclass(frozen=True)
class Series:
    """Holds messages per second in windows of `step` seconds from `since`; None where no producer wrote statistics."""

    since: int
    step: int
    sent: tuple[float | None, ...]
    failed: tuple[float | None, ...]

    @property
    def top(self) -> float:
        return max(
            (good + (bad or 0) for good, bad in zip(self.sent, self.failed, strict=True) if good is not None),
            default=0.0,
        )


@dataclass(frozen=True)
class WidgetState:
    """Holds everything the widget shows.

    `until` limits actions to the dead letters shown, so that they skip later ones; None means that there are none.
    """

    sentence: str
    tone: str
    alerts: tuple[str, ...]
    producers: tuple[str, ...]
    tiles: tuple[tuple[str, str], ...]
    window: str
    series: Series
    caption: str
    causes: tuple[CauseLine, ...]
    others: int
    dead: tuple[tuple[str, int], ...]
    dead_text: str
    dead_total: int
    until: float | None
    why_not: str
    as_of: str
    now: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


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
    series = _series(page)
    total = sum(page.dead_by_topic.values())
    return WidgetState(
        sentence=mask_or_hide(sentence.strip()),
        tone=tone,
        alerts=tuple(mask_or_hide(wording.alert(alert, now)) for alert in page.alerts[:_ALERTS]),
        producers=_producers(page, now),
        tiles=_tiles(page),
        window=window,
        series=series,
        caption=_caption(series),
        causes=tuple(map(_cause, groups)),
        others=max(0, total - sum(group.count for group in groups)),
        dead=tuple(page.dead_by_topic.items())[:_TOPICS],
        dead_text=_dead_text(page.dead_by_topic),
        dead_total=total,
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
    tiles = ", ".join(f"{name} {value}" for name, value in state.tiles)
    lines = (state.sentence, *state.alerts, *state.producers, tiles, *_sparks(state.series), state.dead_text)
    return "\n".join([*filter(None, lines), f"As of {state.as_of}"])


def spark(values: tuple[float | None, ...], top: float, width: int = 60) -> str:
    """Return a chart of block characters, with gaps where no producer wrote statistics."""
    per_bin = -(-len(values) // width) or 1
    highest = [_highest(values[first : first + per_bin]) for first in range(0, len(values), per_bin)]
    return "".join(" " if one is None else _BLOCKS[_level(one, top)] for one in highest)


_BLOCKS = "▁▂▃▄▅▆▇█"


def _level(value: float, top: float) -> int:
    return min(len(_BLOCKS) - 1, math.ceil((len(_BLOCKS) - 1) * value / top)) if top else 0


def _highest(values: tuple[float | None, ...]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _sparks(series: Series) -> tuple[str, ...]:
    if not series.top:
        return ()
    failed = max((value for value in series.failed if value), default=0.0)
    lines = [f"sent   {spark(series.sent, series.top)}  up to {wording.compact(series.top)}/s"]
    if failed:
        lines.append(f"failed {spark(series.failed, failed)}  up to {wording.compact(failed)}/s")
    return tuple(lines)


def _tiles(page: queries.OverviewPage) -> tuple[tuple[str, str], ...]:
    p50, p95, p99 = page.latency[:3]
    return (
        ("failed", wording.percent(page.error_rate)),
        ("throughput", wording.rate(page.throughput)),
        ("p50", wording.milliseconds(p50)),
        ("p95", wording.milliseconds(p95)),
        ("p99", wording.milliseconds(p99)),
        ("pending", wording.count(page.pending)),
        ("dead letters", wording.count(sum(page.dead_by_topic.values()))),
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


def _series(page: queries.OverviewPage) -> Series:
    sent: dict[int, float] = defaultdict(float)
    failed: dict[int, float] = defaultdict(float)
    for point in page.series:
        seconds = max(1.0, min(point.seconds, page.now - point.at))
        sent[point.at] += point.acknowledged / seconds
        failed[point.at] += point.dead / seconds
    ats = range(page.since, int(page.now) + 1, page.step)
    return Series(
        page.since,
        page.step,
        tuple(round(sent[at], 2) if at in sent else None for at in ats),
        tuple(round(failed[at], 2) if at in sent else None for at in ats),
    )


def _caption(series: Series) -> str:
    return (
        f"Messages per second over the last {wording.age(len(series.sent) * series.step)}, "
        f"peak {wording.compact(series.top)}; acknowledged blue, failed red."
    )


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
    )


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} …"


def _dead_text(by_topic: Any) -> str:
    named = [f"{topic} {count:,}" for topic, count in by_topic.items()]
    more = f", and {wording.plural(len(named) - _TOPICS, 'more topic')}" if len(named) > _TOPICS else ""
    return f"Dead letters: {', '.join(named[:_TOPICS])}{more}" if named else ""

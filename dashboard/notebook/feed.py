"""The feed: what the widget shows at one moment, as plain JSON, text, or a picture that needs no script."""

from __future__ import annotations

import html
import math
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from dashboard import data, words
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay import runners
from producer_core.store import Store

WINDOW = "5 min"
_BARS = 60
_TOPICS = 8
_ALERTS = 3


@dataclass(frozen=True)
class Moment:
    """How the store stands. `sent` and `failed` are messages a second in the last windows, oldest first.

    `until` bounds what was seen: an act leaves letters that died later alone. None: no dead letters.
    """

    sentence: str
    tone: str
    alerts: tuple[str, ...]
    tiles: tuple[tuple[str, str], ...]
    sent: tuple[float, ...]
    failed: tuple[float, ...]
    caption: str
    dead: tuple[tuple[str, int], ...]
    dead_text: str
    dead_total: int
    until: float | None
    why_not: str
    warning: str
    as_of: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def moment(store: Store, now: float | None = None) -> Moment:
    """One look at the store."""
    now = time.time() if now is None else now
    everything = DeadLetterFilter()
    with store.borrow():
        page = data.overview(store, WINDOW, now)
        scope = data.scope(store, everything)
        newest = DeadLetters(store).find(everything, limit=1)
        alive = len(runners(store, now))
    tone, sentence = words.sentence(page.situation)
    sent, failed = _series(page)
    return Moment(
        sentence=sentence,
        tone=tone,
        alerts=tuple(words.alert(found, now) for found in page.alerts[:_ALERTS]),
        tiles=_tiles(page),
        sent=sent,
        failed=failed,
        caption=_caption(sent, failed, page.step),
        dead=tuple(page.dead_by_topic.items())[:_TOPICS],
        dead_text=_dead_text(page.dead_by_topic),
        dead_total=scope.count,
        until=math.nextafter(newest[0].failed_at, math.inf) if newest else None,
        why_not=words.why_no_replay("dead", scope.count, alive) or "",
        warning="" if scope.safe else "Some may be on the broker already; a replay looks for them first.",
        as_of=time.strftime("%H:%M:%S", time.localtime(now)),
    )


def _tiles(page: data.Overview) -> tuple[tuple[str, str], ...]:
    p50, p95, p99 = page.latency
    return (
        ("failed", words.percent(page.error_rate)),
        ("throughput", words.rate(page.throughput)),
        ("p50", words.milliseconds(p50)),
        ("p95", words.milliseconds(p95)),
        ("p99", words.milliseconds(p99)),
        ("pending", words.count(page.pending)),
        ("dead letters", words.count(page.dead_total)),
    )


def _series(page: data.Overview) -> tuple[tuple[float, ...], tuple[float, ...]]:
    sent: dict[int, float] = defaultdict(float)
    failed: dict[int, float] = defaultdict(float)
    for point in page.series:
        sent[point.at] += point.acknowledged / point.seconds
        failed[point.at] += point.dead / point.seconds
    ats = range(page.since, int(page.now) + 1, page.step)[-_BARS:]
    return tuple(round(sent[at], 2) for at in ats), tuple(round(failed[at], 2) for at in ats)


def _caption(sent: tuple[float, ...], failed: tuple[float, ...], step: int) -> str:
    top = max((good + bad for good, bad in zip(sent, failed, strict=True)), default=0.0)
    return (
        f"Messages a second over the last {words.age(len(sent) * step)}, {words.compact(top)} at most; "
        "acknowledged blue, failed red."
    )


def _dead_text(by_topic: Any) -> str:
    named = [f"{topic} {count:,}" for topic, count in by_topic.items()]
    more = f", and {len(named) - _TOPICS} more topics" if len(named) > _TOPICS else ""
    return f"Dead letters: {', '.join(named[:_TOPICS])}{more}" if named else ""


def text(seen: Moment) -> str:
    """For a terminal."""
    tiles = ", ".join(f"{name} {value}" for name, value in seen.tiles)
    return "\n".join(
        filter(None, (seen.sentence, *seen.alerts, tiles, seen.dead_text, f"As of {seen.as_of}"))
    )


def page(seen: Moment, name: str) -> str:
    """HTML without script: what remains of the monitor in an export, and what the live widget hides."""
    tiles = "".join(
        f"<td style='padding:2px 16px 2px 0;text-align:left'>{html.escape(key)}<br><b>{html.escape(value)}</b></td>"
        for key, value in seen.tiles
    )
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in (*seen.alerts, seen.dead_text) if line)
    return (
        f"<div class='pc-static-{name}'><p><b>{html.escape(seen.sentence)}</b></p><table><tr>{tiles}</tr></table>"
        f"{picture(seen)}<div><small>{html.escape(seen.caption)}</small></div>{lines}"
        f"<small>A still picture, as of {seen.as_of}</small></div>"
    )


def picture(seen: Moment, width: int = 640, height: int = 80) -> str:
    """Messages a second as bars, the failed ones red on top."""
    top = max((good + bad for good, bad in zip(seen.sent, seen.failed, strict=True)), default=0) or 1
    step = width / max(len(seen.sent), 1)
    bars = []
    for place, pair in enumerate(zip(seen.sent, seen.failed, strict=True)):
        foot = float(height)
        for value, colour in zip(pair, ("#2563eb", "#dc2626"), strict=True):
            if value:
                tall = max(1.0, (height - 2) * value / top)
                foot -= tall
                bars.append(
                    f"<rect x='{place * step:.1f}' y='{foot:.1f}' width='{step * 0.8:.1f}' "
                    f"height='{tall:.1f}' fill='{colour}'/>"
                )
    return (
        f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' role='img' "
        f"aria-label='{html.escape(seen.caption)}'>{''.join(bars)}</svg>"
    )

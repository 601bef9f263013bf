"""The feed: what the widget shows at one moment, as plain JSON, text, or a picture that needs no script."""

from __future__ import annotations

import html
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from dashboard import data, words
from producer_core.dlq import DeadLetterFilter
from producer_core.store import Store

WINDOW = "5 min"
_BARS = 60


@dataclass(frozen=True)
class Moment:
    """How the store stands. `sent` and `failed` are a second's messages, for the last minutes, oldest first."""

    sentence: str
    tone: str
    tiles: tuple[tuple[str, str], ...]
    sent: tuple[float, ...]
    failed: tuple[float, ...]
    dead: tuple[tuple[str, int], ...]
    dead_total: int
    why_not: str
    warning: str
    as_of: str

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def moment(store: Store, now: float | None = None) -> Moment:
    """One look at the store."""
    now = time.time() if now is None else now
    page = data.overview(store, WINDOW, now)
    letters = data.dead_letters(store, DeadLetterFilter(), now)
    tone, sentence = words.sentence(page.situation)
    p50, p95, p99 = page.latency
    sent, failed = _series(page)
    return Moment(
        sentence=sentence,
        tone=tone,
        tiles=(
            ("failed", words.percent(page.error_rate)),
            ("throughput", words.rate(page.throughput)),
            ("p50", words.milliseconds(p50)),
            ("p95", words.milliseconds(p95)),
            ("p99", words.milliseconds(p99)),
            ("pending", words.count(page.pending)),
            ("dead letters", words.count(page.dead_total)),
        ),
        sent=sent,
        failed=failed,
        dead=tuple(page.dead_by_topic.items())[:8],
        dead_total=letters.total,
        why_not="" if letters.runners else "no process that could send them is alive",
        warning=""
        if data.scope(store, DeadLetterFilter()).safe
        else "some may be on the broker already: each is looked for first",
        as_of=time.strftime("%H:%M:%S", time.localtime(now)),
    )


def _series(page: data.Overview) -> tuple[tuple[float, ...], tuple[float, ...]]:
    sent: dict[int, float] = defaultdict(float)
    failed: dict[int, float] = defaultdict(float)
    for point in page.series:
        sent[point.at] += point.acknowledged / point.seconds
        failed[point.at] += point.dead / point.seconds
    ats = range(page.since, int(page.now) // page.step * page.step, page.step)[-_BARS:]
    return tuple(round(sent[at], 2) for at in ats), tuple(round(failed[at], 2) for at in ats)


def text(seen: Moment) -> str:
    """For a terminal."""
    tiles = ", ".join(f"{name} {value}" for name, value in seen.tiles)
    dead = "; ".join(f"{topic} {count:,}" for topic, count in seen.dead)
    return "\n".join(
        filter(None, (seen.sentence, tiles, f"dead letters: {dead}" if dead else "", f"as of {seen.as_of}"))
    )


def page(seen: Moment, name: str) -> str:
    """HTML without script: what remains of the monitor in an export, and what the live widget hides."""
    tiles = "".join(
        f"<td style='padding:2px 12px 2px 0'>{html.escape(key)} <b>{html.escape(value)}</b></td>"
        for key, value in seen.tiles
    )
    dead = "".join(
        f"<tr><td>{html.escape(topic)}</td><td style='text-align:right'>{count:,}</td></tr>"
        for topic, count in seen.dead
    )
    return (
        f"<div class='pc-static-{name}'><p><b>{html.escape(seen.sentence)}</b></p><table><tr>{tiles}</tr></table>"
        f"{picture(seen)}<table>{dead}</table><small>static, as of {seen.as_of}</small></div>"
    )


def picture(seen: Moment, width: int = 640, height: int = 80) -> str:
    """Messages a second as bars, the failed ones red."""
    top = max((*seen.sent, *seen.failed), default=0) or 1
    step = width / max(len(seen.sent), 1)
    bars = []
    for place, (good, bad) in enumerate(zip(seen.sent, seen.failed, strict=True)):
        for value, colour in ((good, "#2563eb"), (bad, "#dc2626")):
            if value:
                tall = max(1.0, (height - 2) * value / top)
                bars.append(
                    f"<rect x='{place * step:.1f}' y='{height - tall:.1f}' width='{step * 0.8:.1f}' "
                    f"height='{tall:.1f}' fill='{colour}'/>"
                )
    return (
        f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' role='img' "
        f"aria-label='Messages a second'>{''.join(bars)}</svg>"
    )

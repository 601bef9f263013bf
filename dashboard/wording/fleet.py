"""The fleet, in words: how many send, what is wrong with one, and how to fill the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from producer_core.dashboard.wording.numbers import count, percent, plural
from producer_core.dashboard.wording.time import age

Tone = Literal["bad", "warning", "good", "quiet"]

_PLURALS: Mapping[str, tuple[str, str]] = {
    "silent": ("is not heard of any more", "are not heard of any more"),
    "cut off": ("reaches no broker", "reach no broker"),
    "alerting": ("has an alert", "have alerts"),
    "failing": ("has messages that died", "have messages that died"),
    "full": ("has a full queue", "have full queues"),
}

HOW_TO_FILL = (
    'This store knows producers of one host only. To see a fleet here, give each producer telemetry_topic="telemetry", '
    "and let the pipeline merge that topic into a store that this dashboard opens:"
)
NO_JOB = (
    "No job has merged telemetry into this store: these producers write to it themselves. To add those of other hosts, "
    'give each telemetry_topic="telemetry", and let the pipeline merge that topic into a store:'
)
FILL = (
    "producer-core pipeline telemetry --topic telemetry -b BROKER:9092 --store fleet.duckdb\n"
    "producer-core dashboard --store fleet.duckdb"
)
"""The commands that fill a fleet's store and open it."""


@dataclass(frozen=True)
class FleetSummary:
    """What the sentence on top is made of; `troubled` counts producers by what is wrong, the worst first, and one of them
    may have a `critical` alert."""

    running: int
    hosts: int
    known: int
    troubled: Sequence[tuple[str, int]]
    critical: bool = False


def crowd(now: FleetSummary) -> tuple[str, str]:
    """A tone and a sentence or two on the whole fleet."""
    if not now.known:
        return "quiet", "No producer has written here yet. Start one on this store and it appears."
    if not now.running and not now.troubled:
        return "quiet", f"No producer runs. The store remembers {plural(now.known, 'producer')}."
    runs = "runs" if now.running == 1 else "run"
    who = (
        f"{plural(now.running, 'producer')} on {plural(now.hosts, 'host')} {runs}"
        if now.running
        else "No producer runs"
    )
    if not now.troubled:
        return "good", f"{who}, and nothing is wrong with {'it' if now.running == 1 else 'any of them'}."
    said = [f"{count(number)} {_PLURALS[state][number != 1]}" for state, number in now.troubled]
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    bad = now.critical or now.troubled[0][0] in ("silent", "cut off")
    return "bad" if bad else "warning", f"{who}. {listed}."


def alerts_of(
    state: str, alerts: Sequence[tuple[str, str]], most: int = 3
) -> tuple[tuple[str, str], list[str]]:
    """The alert that stands for a producer's state (severity and text), and lines on the others: where something else is
    the state, the worst alert is among these. How many there was no room for is said.
    """
    first = alerts[0] if state == "alerting" and alerts else ("", "")
    others = [f"{severity}: {text}" for severity, text in (alerts[1:] if first[1] else alerts)]
    left = len(others) - most
    return first, [*others[:most], *([f"and {plural(left, 'more alert')}"] if left > 0 else [])]


def state(
    name: str,
    now: float,
    *,
    seen_at: float,
    closed_at: float | None,
    error: str | None,
    alert: tuple[str, str],
    dead: int,
    settled: int,
    fill: float,
) -> tuple[Tone, str]:
    """What is to be said of one producer: a tone, and its state in words."""
    silent = age(now - seen_at)
    known: Mapping[str, tuple[Tone, str]] = {
        "silent": ("bad", f"not seen for {silent}, and not closed"),
        "cut off": ("bad", f"no connection: {error}" if error else "no connection yet"),
        "alerting": ("warning" if alert[0] == "warning" else "bad", f"{alert[0]}: {alert[1]}"),
        "failing": ("warning", f"{count(dead)} of {plural(settled, 'message')} died"),
        "full": ("warning", f"its queue is {percent(fill)} full"),
        "well": ("good", "sends"),
        "idle": ("good", "runs, sends nothing"),
        "gone": ("quiet", f"not seen for {silent}, and never closed"),
        "closed": ("quiet", f"closed {age(now - (closed_at or now))} ago"),
    }
    return known[name]


def listed(shown: int, matching: int, known: int) -> str:
    """How many of how many are listed."""
    if shown < matching:
        return f"The first {count(shown)} of {count(matching)}, by trouble. The field above finds the others."
    rest = known - matching
    return f"The store knows {plural(rest, 'more producer')}, closed or gone." if rest > 0 else ""


def versions(found: Mapping[str, int]) -> str:
    """Which versions run: «1.4.0 in 667, 1.3.2 in 333»."""
    listed = [f"{name} in {count(number)}" for name, number in list(found.items())[:4]]
    rest = len(found) - len(listed)
    return f"Versions that run: {', '.join(listed)}{f' and {rest} more' if rest else ''}."

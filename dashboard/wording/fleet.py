"""Texts of the fleet page: the running producers, their problems, and how to add other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from producer_core._internal.plural import plural
from producer_core.dashboard.wording.numbers import count, percent
from producer_core.dashboard.wording.time import age

Tone = Literal["bad", "warning", "good", "quiet"]

_PROBLEMS: Mapping[str, tuple[str, str]] = {
    "silent": ("is not reporting", "are not reporting"),
    "cut off": ("has no broker connection", "have no broker connection"),
    "alerting": ("has a firing alert", "have firing alerts"),
    "failing": ("has failed messages", "have failed messages"),
    "full": ("has a full queue", "have full queues"),
}
"""The text of each problem, for one producer and for several."""

ONE_HOST = (
    'All producers of this store run on one host. To monitor a fleet, set telemetry_topic="telemetry" on each producer, merge '
    "that topic into a store, and open the store in the dashboard:"
)
NO_TELEMETRY_JOB = (
    "No telemetry job has run: these producers write to this store directly. To add producers on other hosts, set "
    'telemetry_topic="telemetry" on each of them and merge that topic into a store:'
)
TELEMETRY_COMMANDS = (
    "producer-core telemetry collect --topic telemetry -b BROKER:9092 --store fleet.duckdb\n"
    "producer-core dashboard --store fleet.duckdb"
)
"""The commands that fill the store of a fleet and open it."""


@dataclass(frozen=True)
class FleetSummary:
    """Holds the numbers of the summary.

    `troubled` counts producers by problem, worst first. `critical` is set where one of them has a critical alert.
    """

    running: int
    hosts: int
    known: int
    troubled: Sequence[tuple[str, int]]
    critical: bool = False


def fleet_summary(now: FleetSummary) -> tuple[str, str]:
    """Return a tone and a summary of the fleet."""
    if not now.known:
        return "quiet", "No producer has written to this store yet. Start one to see it here."
    if not now.running and not now.troubled:
        return "quiet", f"No producers running. The store has records of {plural(now.known, 'producer')}."
    running = (
        f"{plural(now.running, 'producer')} running on {plural(now.hosts, 'host')}"
        if now.running
        else "No producers running"
    )
    if not now.troubled:
        return "good", f"{running}, no problems."
    problems = [f"{count(number)} {_PROBLEMS[state][number != 1]}" for state, number in now.troubled]
    listed = problems[0] if len(problems) == 1 else f"{', '.join(problems[:-1])} and {problems[-1]}"
    bad = now.critical or now.troubled[0][0] in ("silent", "cut off")
    return "bad" if bad else "warning", f"{running}. {listed}."


def alerts_of(
    state: str, alerts: Sequence[tuple[str, str]], most: int = 3
) -> tuple[tuple[str, str], list[str]]:
    """Return the alert that is the producer's state, as severity and text, and lines on the other alerts.

    Where the state is something else, the worst alert is among the lines. The last line counts the alerts beyond
    `most`.
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
    """Return a tone and the text of a producer's state."""
    silent = age(now - seen_at)
    known: Mapping[str, tuple[Tone, str]] = {
        "silent": ("bad", f"not closed, last seen {silent} ago"),
        "cut off": ("bad", f"no connection: {error}" if error else "not connected yet"),
        "alerting": ("warning" if alert[0] == "warning" else "bad", f"{alert[0]}: {alert[1]}"),
        "failing": ("warning", f"{count(dead)} of {plural(settled, 'message')} failed"),
        "full": ("warning", f"queue {percent(fill)} full"),
        "well": ("good", "delivering"),
        "idle": ("good", "idle"),
        "gone": ("quiet", f"never closed, last seen {silent} ago"),
        "closed": ("quiet", f"closed {age(now - (closed_at or now))} ago"),
    }
    return known[name]


def listed(shown: int, matching: int, known: int) -> str:
    """Return how many producers are listed, and how many the list leaves out."""
    if shown < matching:
        return f"Showing the first {count(shown)} of {count(matching)}, worst first. Search above for the others."
    rest = known - matching
    return f"The store has {plural(rest, 'more producer')}, closed or inactive." if rest > 0 else ""


def versions(found: Mapping[str, int]) -> str:
    """Return the running versions, such as "1.4.0 (667), 1.3.2 (333)"."""
    listed = [f"{name} ({count(number)})" for name, number in list(found.items())[:4]]
    rest = len(found) - len(listed)
    return f"Running versions: {', '.join(listed)}{f' and {rest} more' if rest else ''}."

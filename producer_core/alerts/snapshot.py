"""A reading: what a store says at a moment, as far as rules look at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from producer_core.alerts.alert_state import Silence
from producer_core.alerts.conditions import METRICS, Section, Threshold, sections_of, windows_of
from producer_core.alerts.rules import AlertRule

WRITERS = 900.0
"""Seconds back in which a producer counts as writing to a topic."""


class WindowSums(NamedTuple):
    """Counts of a topic and a producer over a window, as in table `statistics`."""

    accepted: int = 0
    acknowledged: int = 0
    dead: int = 0
    failed_attempts: int = 0
    retried: int = 0
    duplicates: int = 0
    possible_duplicates: int = 0
    latency_sum: float = 0.0

    def plus(self, other: WindowSums) -> WindowSums:
        return WindowSums._make(a + b for a, b in zip(self, other, strict=True))


class WriterState(NamedTuple):
    """A topic and a producer that writes to it."""

    topic: str
    producer: str


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A producer. `silent`: seconds without a sign of life, as its watcher judges; see `Heartbeats`."""

    producer_id: str
    client: str
    seen_at: float
    silent: float
    closed: bool
    started_at: float
    connected: bool
    pending: int
    waiting_retry: int
    queue_messages: int
    queue_limit: int
    memory_bytes: int
    memory_limit: int | None


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """Dead letters of a topic that wait: how many, since when the oldest, and how many came in each window."""

    count: int
    oldest: float
    came: Mapping[float, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """What a store says at `now`. Windows are seconds back from now; `missing` parts could not be read."""

    now: float
    sums: Mapping[float, Mapping[WriterState, WindowSums]] = field(default_factory=dict)
    latencies: Mapping[float, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    producers: tuple[LastSeen, ...] = ()
    dead_letters: Mapping[str, DeadLetterCounts] = field(default_factory=dict)
    failing_routes: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    silences: Sequence[Silence] = ()
    problem: tuple[str, str] | None = None
    """The name of the rules file and what is wrong with it."""
    missing: frozenset[Section] = frozenset()

    def writers(self, topic: str) -> frozenset[str]:
        """Whose messages for the topic fail; where none do, who writes to it."""
        rows = [(who, sums) for who, sums in self.sums.get(WRITERS, {}).items() if who.topic == topic]
        failing = frozenset(who.producer for who, sums in rows if sums.dead or sums.failed_attempts)
        return failing or frozenset(who.producer for who, _ in rows)


@dataclass(frozen=True, slots=True)
class SnapshotNeeds:
    """What has to be read for a set of rules."""

    windows: tuple[float, ...]
    latency_windows: tuple[float, ...]
    letter_windows: tuple[float, ...]
    dead_letters: bool

    @classmethod
    def of(cls, rules: Iterable[AlertRule]) -> SnapshotNeeds:
        conditions = [rule.condition for rule in rules if rule.enabled]
        thresholds = [
            item for item in conditions if isinstance(item, Threshold) and METRICS[item.metric].window
        ]

        def windows(section: Section) -> set[float]:
            return {item.window for item in thresholds if METRICS[item.metric].section == section}

        sums = {window for condition in conditions for window in windows_of(condition)}
        return cls(
            windows=tuple(sorted(sums | {WRITERS})),
            latency_windows=tuple(sorted(windows("latencies"))),
            letter_windows=tuple(sorted(windows("letters"))),
            dead_letters=any("letters" in sections_of(condition) for condition in conditions),
        )

"""A snapshot of the parts of a store that alert rules evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from producer_core._internal.decision_objective import DecisionObjective
from producer_core.alerts.alert_state import Silence
from producer_core.alerts.conditions import METRICS, Section, Threshold, sections_of, windows_of
from producer_core.alerts.rules import AlertRule

WRITER_WINDOW = 900.0
"""Seconds for which a producer counts as a writer of a topic after a message."""


class WindowSums(NamedTuple):
    """Counts per topic and producer over a window, as in the table `statistics`."""

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


class Writer(NamedTuple):
    """A topic, and the id of a producer that writes to it."""

    topic: str
    producer: str


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of a producer. `silent`: seconds without a heartbeat, as measured by `Heartbeats`. `succeeded`: a later
    producer has its journal."""

    producer_id: str
    client: str
    seen_at: float
    silent: float
    closed: bool
    succeeded: bool
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
    """The pending dead letters of a topic: their number, the time of the oldest, and the new ones per window."""

    count: int
    oldest: float
    new: Mapping[float, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """The decisions on the dead letters of a topic with an objective, over its period.

    `evaluated` were decided, or had their deadline, within the period; `missed` of them missed it, `missed_lately` in the
    last hour. `overdue` pending ones are past their deadline; `due` ones have it within an hour, the first at `next_at`.
    """

    topic: str
    objective: DecisionObjective
    evaluated: int
    missed: int
    missed_lately: int
    overdue: int
    due: int
    next_at: float | None


@dataclass(frozen=True, slots=True)
class ReturnedCause:
    """A cause that was marked as resolved and failed again: `pending` dead letters, the first one at `back_at` with this
    `version` of the application (empty: unknown) on `topic`."""

    fingerprint: str
    code: str
    topic: str
    version: str
    back_at: float
    resolved_at: float
    resolved_by: str
    pending: int


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A pending request for the approval of a replay. `rule` says why it needs a second person."""

    request_id: str
    who: str
    records: int
    rule: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The state of a store at `now`. Windows are seconds back from `now`; `missing` lists the parts that were not read."""

    now: float
    sums: Mapping[float, Mapping[Writer, WindowSums]] = field(default_factory=dict)
    latencies: Mapping[float, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    producers: tuple[ProducerState, ...] = ()
    dead_letters: Mapping[str, DeadLetterCounts] = field(default_factory=dict)
    decisions: tuple[DecisionCounts, ...] = ()
    returned: tuple[ReturnedCause, ...] = ()
    failing_routes: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    silences: Sequence[Silence] = ()
    requests: tuple[WaitingRequest, ...] = ()
    problem: tuple[str, str] | None = None
    """The name of the rules file and its mistakes."""
    missing: frozenset[Section] = frozenset()

    def later(self, now: float, elapsed: float, *, alive: str) -> StoreSnapshot:
        """Return the snapshot `elapsed` seconds later if nothing was written since except the heartbeats of `alive`."""
        producers = tuple(
            item if item.producer_id == alive else replace(item, silent=item.silent + elapsed)
            for item in self.producers
        )
        return replace(self, now=now, producers=producers)

    def writers(self, topic: str) -> frozenset[str]:
        """Return the producers whose messages for the topic fail, or else all producers that write to it."""
        rows = [
            (writer, sums)
            for writer, sums in self.sums.get(WRITER_WINDOW, {}).items()
            if writer.topic == topic
        ]
        failing = frozenset(writer.producer for writer, sums in rows if sums.dead or sums.failed_attempts)
        return failing or frozenset(writer.producer for writer, _ in rows)


@dataclass(frozen=True, slots=True)
class SnapshotNeeds:
    """The parts of a snapshot that a set of rules needs."""

    windows: tuple[float, ...]
    latency_windows: tuple[float, ...]
    dead_letter_windows: tuple[float, ...]
    dead_letters: bool
    decisions: bool = False
    causes: bool = False

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
            windows=tuple(sorted(sums | {WRITER_WINDOW})),
            latency_windows=tuple(sorted(windows("latencies"))),
            dead_letter_windows=tuple(sorted(windows("dead_letters"))),
            dead_letters=any("dead_letters" in sections_of(condition) for condition in conditions),
            decisions=any("decisions" in sections_of(condition) for condition in conditions),
            causes=any("causes" in sections_of(condition) for condition in conditions),
        )

"""Count the events of a producer by topic, and provide consistent snapshots of the counters."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from producer_core.events import Acknowledged, AttemptFailed, DeadLetter, Hook, Remark
from producer_core.metrics.ack_batch import Acknowledgements, TopicSums
from producer_core.metrics.histogram import Histogram

_HISTORY = 1000
"""The latest latencies that are kept individually, for the statistics key `latency_history`."""


@dataclass(slots=True)
class TopicCounters:
    """The counters of one topic since the producer started. `bytes` counts acknowledged values; latency is in seconds."""

    acknowledged: int = 0
    dead: int = 0
    failed_attempts: int = 0
    retried: int = 0
    retry_successes: int = 0
    duplicates: int = 0
    possible_duplicates: int = 0
    landed: int = 0
    order_breaks: int = 0
    bytes: int = 0
    latency_sum: float = 0.0
    histogram: Histogram = field(default_factory=Histogram)

    def copy(self) -> TopicCounters:
        values = (*_counts_of(self), self.histogram.copy())
        return TopicCounters(*values)


_counts_of = attrgetter(*(item.name for item in fields(TopicCounters)[:-1]))  # without the histogram


@dataclass(frozen=True)
class Snapshot:
    """All counters at one moment. `errors` counts failed attempts by (topic, code, kind).

    A snapshot never changes. Two snapshots share the counters of a topic without events in between.
    """

    topics: Mapping[str, TopicCounters]
    errors: Mapping[tuple[str, str, str], int]
    recent_latencies: tuple[float, ...]

    def total(self, name: str) -> Any:
        return sum(getattr(counters, name) for counters in self.topics.values())

    @property
    def acknowledged(self) -> int:
        return int(self.total("acknowledged"))

    @property
    def dead(self) -> int:
        return int(self.total("dead"))

    @property
    def histogram(self) -> Histogram:
        merged = Histogram()
        for counters in self.topics.values():
            merged.merge(counters.histogram)
        return merged


class Metrics(Hook):
    """Counts hook events. Batches arrive on the poll thread, single events on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the four fields below
        self._topics: dict[str, TopicCounters] = {}
        self._copies: dict[str, TopicCounters] = {}  # of topics without events since the last snapshot
        self._errors: Counter[tuple[str, str, str]] = Counter()
        self._latencies: deque[float] = deque(maxlen=_HISTORY)

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        with self._lock:
            for topic, sums in Acknowledgements.of(batch).sums_by_topic().items() if batch else ():
                self._count(self._counters_of(topic), sums)

    def attempt_failed(self, event: AttemptFailed) -> None:
        with self._lock:
            counters = self._counters_of(event.topic)
            counters.failed_attempts += 1
            self._errors[event.topic, event.code, event.kind] += 1
            if event.retry_in is not None:
                counters.retried += 1

    def counted(self, topic: str, what: Remark) -> None:
        with self._lock:
            counters = self._counters_of(topic)
            setattr(counters, what, getattr(counters, what) + 1)

    def died(self, dead_letter: DeadLetter) -> None:
        with self._lock:
            self._counters_of(dead_letter.topic).dead += 1

    def duplicate(self, topic: str) -> None:
        with self._lock:
            self._counters_of(topic).duplicates += 1

    def snapshot(self) -> Snapshot:
        with self._lock:
            for topic, counters in self._topics.items():
                if topic not in self._copies:
                    self._copies[topic] = counters.copy()
            return Snapshot(
                {topic: self._copies[topic] for topic in self._topics},
                dict(self._errors),
                tuple(self._latencies),
            )

    def _counters_of(self, topic: str) -> TopicCounters:
        """Return a topic's counters for an update."""
        self._copies.pop(topic, None)
        return self._topics.get(topic) or self._topics.setdefault(topic, TopicCounters())

    def _count(self, counters: TopicCounters, sums: TopicSums) -> None:
        latencies = sums.latencies
        counters.acknowledged += len(latencies)
        counters.bytes += sums.bytes
        counters.latency_sum += sum(latencies)
        counters.retry_successes += sums.retried
        # A message that a probe found has no latency, because the time of its append is unknown.
        known = latencies if min(latencies) > 0 else [latency for latency in latencies if latency > 0]
        counters.histogram.add(known)
        self._latencies.extend(known[-_HISTORY:])

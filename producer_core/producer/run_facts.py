"""Hold what a producer did while a block ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """The sums since the start of the block, and the time since then in seconds."""

    seconds: float
    acknowledged: int
    dead: int


@dataclass(frozen=True)
class TopicRun:
    """The counts of a topic during the block. `latencies` is its histogram, `bytes` counts acknowledged values."""

    acknowledged: int
    dead: int
    failed_attempts: int
    retried: int
    duplicates: int
    bytes: int
    latency_sum: float
    latencies: Mapping[int, int]


@dataclass(frozen=True)
class RunFacts:
    """Everything that a report shows. Times are in seconds since 1970; `errors` counts attempts by topic and code."""

    began_at: float
    seconds: float
    topics: Mapping[str, TopicRun]
    errors: Mapping[tuple[str, str], int]
    pending: int
    samples: tuple[Sample, ...]
    application: str
    cluster_id: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    ended_with: str = ""

    @property
    def latencies(self) -> Counter[int]:
        merged: Counter[int] = Counter()
        for topic in self.topics.values():
            merged.update(topic.latencies)
        return merged

    def total(self, name: str) -> Any:
        return sum(getattr(topic, name) for topic in self.topics.values())

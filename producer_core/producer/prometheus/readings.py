"""Define the values that metrics are made of, whether a process or a store supplies them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TopicReading:
    """The totals of one topic. `latency_sum` is in seconds; `buckets` are those of `metrics.histogram`."""

    acknowledged: int = 0
    bytes: int = 0
    dead: int = 0
    retried: int = 0
    retry_successes: int = 0
    duplicates: int = 0
    possible_duplicates: int = 0
    latency_sum: float = 0.0
    buckets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientReading:
    """The totals of the Kafka clients."""

    batches: int = 0
    batch_messages: int = 0
    batch_bytes: int = 0
    epoch_rises: int = 0


@dataclass(frozen=True, slots=True)
class BrokerReading:
    """The totals of one broker. Sums of durations are in seconds."""

    requests: int = 0
    retries: int = 0
    timeouts: int = 0
    disconnects: int = 0
    queue_count: int = 0
    queue_sum: float = 0.0
    outbuf_count: int = 0
    outbuf_sum: float = 0.0
    rtt_count: int = 0
    rtt_sum: float = 0.0
    throttle_count: int = 0
    throttle_sum: float = 0.0


@dataclass(frozen=True, slots=True)
class ProducersReading:
    """The present state of the running producers, summed."""

    running: int = 0
    connected: int = 0
    pending: int = 0
    waiting_retry: int = 0
    queue_messages: int = 0
    queue_limit: int = 0


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The present state that only a producer's own process knows. None: the producer has no such part."""

    journal_messages: int | None = None
    journal_bytes: int | None = None
    deduplication_degraded: bool | None = None


@dataclass(frozen=True, slots=True)
class StoreReading:
    """The present state of the store. `heartbeat_at` is in seconds since 1970, None without any producer."""

    bytes: int
    heartbeat_at: float | None = None
    alert_evaluation: bool | None = None


class FailedAttempts(NamedTuple):
    """The key of a number of failed attempts."""

    topic: str
    code: str


class DeadLetters(NamedTuple):
    """The key of a number of dead letters."""

    topic: str
    state: str
    code: str
    verdict: str


class FiringAlerts(NamedTuple):
    """The key of a number of firing alerts."""

    rule: str
    severity: str


class CircuitKey(NamedTuple):
    """The key of a number of circuits. The topic is empty for the cluster."""

    topic: str
    state: str


@dataclass(frozen=True, slots=True)
class CircuitReading:
    """The circuits of the running producers by state, and totals of all producers with a circuit breaker."""

    states: Mapping[CircuitKey, int]
    refused: Mapping[str, int]
    openings: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All values at one moment. Topics are in the order in which they receive a label of their own.

    `dead_letters` is None where another source has them; so are `process`,
    `circuits` and `store`. `applications` counts the running producers by
    application. `oldest_dead_letters` has the
    seconds since 1970 of the oldest pending one by topic.
    """

    topics: Mapping[str, TopicReading]
    failed_attempts: Mapping[FailedAttempts, int] = field(default_factory=dict)
    client: ClientReading = ClientReading()
    brokers: Mapping[int, BrokerReading] = field(default_factory=dict)
    producers: ProducersReading = ProducersReading()
    applications: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Mapping[DeadLetters, int] | None = None
    oldest_dead_letters: Mapping[str, float] = field(default_factory=dict)
    firing_alerts: Mapping[FiringAlerts, int] = field(default_factory=dict)
    process: ProcessReading | None = None
    circuits: CircuitReading | None = None
    store: StoreReading | None = None


def sum_by_label(reading: type[Any], items: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """Sum the readings of the same label. Buckets are counts, so they are added too."""
    groups: dict[K, list[Any]] = {}
    for label, item in items:
        groups.setdefault(label, []).append(item)
    return {label: add(reading, group) if group[1:] else group[0] for label, group in groups.items()}


def add(reading: type[Any], group: Sequence[Any]) -> Any:
    """Return the sum of readings of a class, field by field."""
    sums: dict[str, Any] = {}
    for name in (item.name for item in fields(reading)):
        values = [getattr(item, name) for item in group]
        sums[name] = _added(values) if isinstance(values[0], Mapping) else sum(values)
    return reading(**sums)


def _added(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    added: dict[int, int] = defaultdict(int)
    for counts in histograms:
        for bucket, count in counts.items():
            added[bucket] += count
    return added

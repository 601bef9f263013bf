"""A batch: what a recorder flushes at once, and a pipeline merges, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from producer_core.events import Notice


class StatisticsRow(NamedTuple):
    """One window of one topic of one producer; the columns of table `statistics` without its resolution."""

    window_start: int
    cluster_id: str
    producer_id: str
    topic: str
    accepted: int
    acknowledged: int
    dead: int
    failed_attempts: int
    retried: int
    retry_successes: int
    duplicates: int
    possible_duplicates: int
    bytes: int
    latency_sum: float


class LatencyRow(NamedTuple):
    """How many acknowledgements of a window fell into one histogram bucket."""

    window_start: int
    cluster_id: str
    producer_id: str
    topic: str
    bucket: int
    count: int  # type: ignore[assignment]  # the column's name; nobody needs tuple.count here


class ErrorRow(NamedTuple):
    """How often one error code came back in a window."""

    window_start: int
    cluster_id: str
    producer_id: str
    topic: str
    code: str
    kind: str
    count: int  # type: ignore[assignment]  # the column's name; nobody needs tuple.count here


class ProducerRow(NamedTuple):
    """A producer's heartbeat; the columns of table `producers`, in order."""

    producer_id: str
    cluster_id: str
    client_id: str
    host: str
    pid: int
    version: str
    started_at: float
    seen_at: float
    closed_at: float | None
    connected: bool
    connection_error: str | None
    pending: int
    waiting_retry: int
    queue_messages: int
    queue_limit: int
    memory_bytes: int
    memory_limit: int | None
    runs_replays: bool
    delivery: str
    settings: str


@dataclass(frozen=True)
class Batch:
    """What happened since the last batch of this producer. `sequence` is dense and starts at 0.

    The pair (producer_id, sequence) makes a merge idempotent: a batch that is there already adds nothing.
    """

    producer_id: str
    sequence: int
    statistics: tuple[StatisticsRow, ...] = ()
    latencies: tuple[LatencyRow, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    producer: ProducerRow | None = None
    notices: tuple[Notice, ...] = ()
    resolution: int = 1

    @property
    def cluster_id(self) -> str:
        """The cluster this batch speaks of; empty when it says nothing of one."""
        rows = (self.producer, *self.statistics[:1], *self.latencies[:1], *self.errors[:1])
        return next((row.cluster_id for row in rows if row is not None), "")

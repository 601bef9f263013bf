"""A batch: what a recorder flushes at once, and a pipeline merges, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

from producer_core.events import Notice
from producer_core.metrics.ack_ledger import GivenUpRow, LedgerRow


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


class ClientRow(NamedTuple):
    """One window of one producer's client; the columns of table `client_statistics` without its resolution."""

    window_start: int
    cluster_id: str
    producer_id: str
    samples: int
    cut_off: int
    queued_sum: int
    room_sum: int
    batches: int
    batch_messages: int
    batch_bytes: int
    epoch_rises: int
    fill_highest: float
    unpolled_highest: int
    late_highest: float


class BrokerRow(NamedTuple):
    """One window of one broker as one producer's client sees it; the columns of table `broker_statistics`."""

    window_start: int
    cluster_id: str
    producer_id: str
    broker_id: int
    address: str
    samples: int
    up: int
    down: int
    requests: int
    retries: int
    timeouts: int
    disconnects: int
    queue_count: int
    queue_sum: float
    outbuf_count: int
    outbuf_sum: float
    rtt_count: int
    rtt_sum: float
    throttle_count: int
    throttle_sum: float
    in_flight_highest: int
    queue_highest: float
    queue_p99: float
    outbuf_highest: float
    outbuf_p99: float
    rtt_highest: float
    rtt_p99: float
    throttle_highest: float


class RowKind(NamedTuple):
    """A kind of rows: what a row is, how many of its first columns say what it is about, how many of its last are
    maxima; those between are sums."""

    row: type[Any]
    keys: int
    maxima: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.row._fields)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """What a row is about, without the start of its window."""
        return self.columns[1 : self.keys]

    @property
    def sums(self) -> tuple[str, ...]:
        return self.columns[self.keys : len(self.columns) - self.maxima]

    @property
    def highest(self) -> tuple[str, ...]:
        return self.columns[len(self.columns) - self.maxima :]


KINDS: Mapping[str, RowKind] = MappingProxyType(
    {
        "statistics": RowKind(StatisticsRow, 4),
        "latencies": RowKind(LatencyRow, 5),
        "errors": RowKind(ErrorRow, 6),
        "client_statistics": RowKind(ClientRow, 3, maxima=3),
        "broker_statistics": RowKind(BrokerRow, 5, maxima=8),
    }
)
"""The kinds of rows of a batch, by the name of its field, which is the table's as well."""


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
    """What happened since the last batch of this producer. `sequence` is dense, over its restarts as well.

    The pair (producer_id, sequence) makes a merge idempotent: a batch that is there already adds nothing. A batch with
    `first` stands for all from there to `sequence`. `ledger_lost`: acknowledgements whose ledger rows had no
    room where they waited.
    """

    producer_id: str
    sequence: int
    statistics: tuple[StatisticsRow, ...] = ()
    latencies: tuple[LatencyRow, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    producer: ProducerRow | None = None
    notices: tuple[Notice, ...] = ()
    resolution: int = 1
    client_statistics: tuple[ClientRow, ...] = ()
    broker_statistics: tuple[BrokerRow, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    given_up: tuple[GivenUpRow, ...] = ()
    first: int | None = None
    ledger_lost: int = 0

    @property
    def begins(self) -> int:
        """The first of the batches that this one stands for."""
        return self.sequence if self.first is None else self.first

    @property
    def acknowledgements(self) -> int:
        """How many its ledger rows tell."""
        return sum(row.count for row in self.ledger)

    def without_ledger(self) -> Batch:
        """The same without its ledger, which somebody else keeps."""
        return replace(self, ledger=(), given_up=()) if self.ledger or self.given_up else self

    def robbed(self, acknowledgements: int | None = None) -> Batch:
        """The same without ledger rows, which are lost: it says how many they told. Of all rows, or of the oldest, until
        so many `acknowledgements` are gone."""
        told = accumulate((row.count for row in self.ledger), initial=0)
        gone = sum(1 for so_far in told if acknowledgements is None or so_far < acknowledgements)
        kept = self.ledger[gone:]
        lost = self.acknowledgements - sum(row.count for row in kept)
        return replace(self, ledger=kept, ledger_lost=self.ledger_lost + lost)

    @property
    def cluster_id(self) -> str:
        """The cluster this batch speaks of; empty when it says nothing of one."""
        rows = (self.producer, *self.statistics[:1], *self.latencies[:1], *self.errors[:1])
        return next((row.cluster_id for row in rows if row is not None), "")

"""Define the batches of statistics that a recorder writes and a pipeline merges."""

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
    """The number of acknowledgements of a window in one histogram bucket."""

    window_start: int
    cluster_id: str
    producer_id: str
    topic: str
    bucket: int
    count: int  # type: ignore[assignment]  # the column's name, which replaces tuple.count


class ErrorRow(NamedTuple):
    """The number of failed attempts with one error code in a window."""

    window_start: int
    cluster_id: str
    producer_id: str
    topic: str
    code: str
    kind: str
    count: int  # type: ignore[assignment]  # the column's name, which replaces tuple.count


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
    """One window of one broker in one client's statistics; the columns of table `broker_statistics`."""

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
    """Describes a kind of rows: its class, the number of key columns at the start and of maxima at the end.

    The columns in between are sums.
    """

    row: type[Any]
    keys: int
    maxima: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.row._fields)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row, without the start of its window."""
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
"""The kinds of rows of a batch by the name of the batch's field, which is also the table's name."""


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
    application: str = ""  # empty: the producer has no application name


@dataclass(frozen=True)
class Batch:
    """The statistics since the previous batch of this producer. `sequence` has no gaps, even across restarts.

    The pair (producer_id, sequence) makes a merge idempotent: a second copy of a batch adds nothing. A batch with `first`
    replaces all batches from `first` to `sequence`. `ledger_lost` counts acknowledgements whose ledger rows were dropped
    because there was no room for them.
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
        """The sequence of the first batch that this one replaces."""
        return self.sequence if self.first is None else self.first

    @property
    def is_heartbeat(self) -> bool:
        """Whether the batch shows only that a connected producer without pending messages is alive."""
        row = self.producer
        return (
            row is not None
            and row.connected
            and row.closed_at is None
            and not (row.pending or row.waiting_retry or row.queue_messages)
            and not (self.statistics or self.latencies or self.errors or self.notices)
            and not (self.ledger or self.given_up)
        )

    @property
    def acknowledgements(self) -> int:
        """The number of acknowledgements in the ledger rows."""
        return sum(row.count for row in self.ledger)

    def without_ledger(self) -> Batch:
        """Return the batch without its ledger, for a destination that does not keep one."""
        return replace(self, ledger=(), given_up=()) if self.ledger or self.given_up else self

    def drop_ledger_rows(self, acknowledgements: int | None = None) -> Batch:
        """Return the batch without ledger rows, and count their acknowledgements as lost.

        With `acknowledgements` only the oldest rows are dropped, until they contain at least that many.
        """
        totals = accumulate((row.count for row in self.ledger), initial=0)
        dropped = sum(1 for total in totals if acknowledgements is None or total < acknowledgements)
        kept = self.ledger[dropped:]
        lost = self.acknowledgements - sum(row.count for row in kept)
        return replace(self, ledger=kept, ledger_lost=self.ledger_lost + lost)

    @property
    def application(self) -> str:
        """The producer's application; empty without one, and without a heartbeat."""
        return "" if self.producer is None else self.producer.application

    @property
    def cluster_id(self) -> str:
        """The cluster of the rows; empty when the batch has no rows of a cluster."""
        rows = (self.producer, *self.statistics[:1], *self.latencies[:1], *self.errors[:1])
        return next((row.cluster_id for row in rows if row is not None), "")

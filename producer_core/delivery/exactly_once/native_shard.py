"""A shard whose plain messages go through the native core, into a transaction that is open while they arrive."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.exactly_once.log_positions import LogPosition, PartitionId, split
from producer_core.delivery.exactly_once.native_client import CommittedColumns, NativeClient, ReportFailed
from producer_core.delivery.exactly_once.outcome import TransactionOutcome
from producer_core.delivery.exactly_once.shard import QueuedMessage, Shard, take_batch
from producer_core.delivery.exactly_once.transaction_errors import FailureCause, is_permanent_rejection
from producer_core.delivery.exactly_once.transactional_client import TransactionalClient, TransactionFailed
from producer_core.delivery.report_batch import ReportBatch

NO_CORE = "Exactly-once delivery runs in Python, because the native core cannot be used."
_GROUP = 2000
"""Messages that are passed to the client in one call."""
_GROUP_PAUSE_S = 0.005
"""Seconds between two groups. Fewer would hand Python's lock over more often; librdkafka waits as long for a batch."""
_UNREPORTED = 5000
"""Messages of an open transaction that the client may have without a report. More would wait in the client, and the commit
for them."""
_SHORTEST_S = 0.1
"""Seconds for which a transaction stays open although its oldest message is old already: a commit costs half as much."""
_FIRST_COMMIT_S = 0.05
"""The mean duration of a commit before the first one is measured."""
_COMMIT_WEIGHT = 0.2
"""The weight of the latest commit in the mean."""


@dataclass
class _OpenTransaction:
    """The messages in the open transaction, and the time (monotonic) at which it is to be committed."""

    commit_at: float
    messages: list[QueuedMessage] = field(default_factory=list)
    size: int = 0

    def add(self, group: Sequence[QueuedMessage]) -> None:
        self.messages += group
        self.size += sum(one.size for one in group)

    def remove_last(self, count: int) -> list[QueuedMessage]:
        removed = self.messages[-count:]
        del self.messages[-count:]
        self.size -= sum(one.size for one in removed)
        return removed

    @property
    def deliveries(self) -> list[Delivery]:
        return [one.delivery for one in self.messages]


class NativeShard(Shard):
    """Send plain messages through the native core. Everything else takes the path of `Shard`, which alone decides outcomes.

    A message is plain if its partition is known and it does not have to be compared with the log. After a failed
    transaction, and while a partition is limited, all messages take the path of `Shard` until one of its transactions
    commits.
    """

    native = True
    """Whether the core is used. Any thread may change it; the next transaction obeys."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._mean_commit = _FIRST_COMMIT_S
        self._python_next = False  # the next transaction finds out what was wrong with this one

    @property
    def _client_type(self) -> type[NativeClient]:
        return NativeClient

    def _fence(self, transactional_id: str) -> TransactionalClient:
        client = super()._fence(transactional_id)
        if isinstance(client, NativeClient) and client.core_error is not None and self.native:
            self.native = False
            self._listener.notice("native_core_unavailable", "warning", f"{NO_CORE} {client.core_error}")
        return client

    @property
    def uses_core(self) -> bool:
        """Whether the next plain message goes through the core."""
        client = self._client
        return (
            self.native
            and isinstance(client, NativeClient)
            and client.has_core
            and not (self._failures or self._limits or self._python_next)
        )

    def _time_left(self) -> float:
        return 0.0 if self._queue and self.uses_core else super()._time_left()

    def _process_batch(self, batch: Sequence[QueuedMessage]) -> None:
        if self.uses_core and self._is_plain(batch):
            self._stream(batch)
        else:
            self._python_next = False
            super()._process_batch(batch)

    def _is_plain(self, batch: Sequence[QueuedMessage]) -> bool:
        deliveries = [one.delivery for one in batch]
        partitions = {(one.topic, one.placement.partition) for one in deliveries}
        are_known = all(self._positions.settled_offset(partition) is not None for partition in partitions)
        return are_known and len(split(deliveries, self._positions).rest) == len(batch)

    # one transaction

    def _stream(self, group: Sequence[QueuedMessage]) -> None:
        """Send messages in one transaction until the oldest one is old enough, and commit it."""
        client, opened = self._native_client(), time.monotonic()
        deadline = opened + self._bounds.transaction_timeout
        transaction = _OpenTransaction(self._commit_time(group[0].since, opened))
        self._unconfirmed = set()
        try:
            transaction.add(group)
            client.begin()
            while group:
                self._unconfirmed.update(one.delivery.id for one in group)
                passed = client.pass_on([one.delivery for one in group], deadline)
                if passed < len(group):
                    self._put_back_refused(transaction, len(group) - passed)
                    break
                group = self._next_group(client, transaction)
                transaction.add(group)
            committing = time.monotonic()
            columns = client.finish(len(transaction.messages), deadline)
        except TransactionFailed as failure:
            self._python_next = True
            self._put_back(transaction.messages)
            self._on_failed_transaction(failure, transaction.deliveries, time.monotonic() - opened)
            return
        now = time.monotonic()
        self._mean_commit += _COMMIT_WEIGHT * (now - committing - self._mean_commit)
        self._settle_columns(transaction.deliveries, columns, now - opened)
        self._unconfirmed = set()
        self._pause_after_commit()

    def _commit_time(self, since: float, now: float) -> float:
        """Return when to commit: early enough for the oldest message, but not so early that commits take all the time."""
        return max(
            since + self._bounds.latency - self._mean_commit, now + min(_SHORTEST_S, self._bounds.latency)
        )

    def _native_client(self) -> NativeClient:
        client = self._current_client()
        if not isinstance(client, NativeClient):
            raise AssertionError("the client has no native core")
        return client

    def _put_back_refused(self, transaction: _OpenTransaction, count: int) -> None:
        """Put back the last messages. The Python path sends them, and reports why the client refused the first one."""
        self._python_next = True
        rest = transaction.remove_last(count)
        self._unconfirmed.difference_update(one.delivery.id for one in rest)
        self._put_back(rest, current=len(transaction.messages))

    def _next_group(self, client: NativeClient, transaction: _OpenTransaction) -> list[QueuedMessage]:
        """Return the next messages of the open transaction; none when it is to be committed."""
        while True:
            unreported, failed = client.unreported
            if len(self._queue) < _GROUP or unreported >= _UNREPORTED:
                left = transaction.commit_at - time.monotonic()
                self._stopping.wait(max(0.0, min(_GROUP_PAUSE_S, left)))
            self._serve()
            if failed or time.monotonic() >= transaction.commit_at:
                return []
            group = self._take_group(transaction, _UNREPORTED - unreported)
            if group is None or (group and self._is_plain(group)):
                return group or []
            if group:
                self._put_back(group, current=len(transaction.messages))
                return []

    def _take_group(self, transaction: _OpenTransaction, limit: int) -> list[QueuedMessage] | None:
        """Take up to `limit` messages that have arrived. Return None if the transaction takes no more of them."""
        sent = len(transaction.messages)
        room, size = self._bounds.stream_messages - sent, self._bounds.bytes - transaction.size
        with self._changed:
            if room <= 0 or size <= 0 or self._purged or self._id_taken.is_set() or not self.uses_core:
                return None
            group, _ = take_batch(self._queue, min(_GROUP, room, limit), size, {})
            self._bytes -= sum(one.size for one in group)
            self._current = sent + len(group)
        return group

    def _is_explained(self, failure: TransactionFailed, cause: FailureCause) -> bool:
        """Return whether a record was rejected: the Python path sends the messages again and finds out which."""
        rejected = isinstance(failure, ReportFailed) and is_permanent_rejection(failure.error)
        return rejected or super()._is_explained(failure, cause)

    def _settle_columns(
        self, deliveries: Sequence[Delivery], columns: CommittedColumns, latency: float
    ) -> None:
        """Settle the messages of a committed transaction, then report them."""
        if not deliveries:
            return
        written: dict[PartitionId, list[int]] = {}
        for delivery, offset in zip(deliveries, columns.offsets, strict=True):
            written.setdefault((delivery.topic, delivery.placement.partition), []).append(offset)
        lowest = {partition: min(offsets) for partition, offsets in written.items()}
        if restarted := self._positions.recreated_at(lowest):
            self._write_state(lambda: self._positions.restart_partitions(restarted))
        self._write_state(lambda: self._positions.settle_offsets(deliveries, written))
        for reports in report_batches(deliveries, columns, latency):
            self._listener.report(reports)


def report_batches(
    deliveries: Sequence[Delivery], columns: CommittedColumns, latency: float
) -> list[ReportBatch]:
    """Return the reports of committed messages: one batch of those that need no message, and one of the others.

    The first batch is ordered by partition. The hooks then see long runs of consecutive offsets, as without transactions;
    each run costs as much as a message. The second batch is in the order of the messages.
    """
    plain: list[int] = []
    detailed: list[int] = []
    for row, delivery in enumerate(deliveries):
        callbacks = delivery.callbacks
        needs_message = delivery.attempts or (callbacks is not None and callbacks.on_settled is None)
        (detailed if needs_message else plain).append(row)
    partitions = [(one.topic, one.placement.partition) for one in deliveries]
    plain.sort(key=partitions.__getitem__)
    rows: list[Any] = []
    for row in plain:
        rows += (deliveries[row], None, partitions[row][1], columns.offsets[row], latency)
    reports: list[Report] = []
    for row in detailed:
        topic, partition = partitions[row]
        position = LogPosition(topic, partition, columns.offsets[row], columns.timestamps[row])
        outcome = TransactionOutcome(deliveries[row], None, position, latency)
        reports.append((deliveries[row], None, outcome))
    return [batch for batch in (ReportBatch(rows), ReportBatch.of(reports)) if len(batch)]

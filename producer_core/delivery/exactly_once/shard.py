"""A shard: one transactional id and one thread that collects messages, commits them in transactions, and recovers.

Every failed transaction is handled the same way: destroy the client, fence with a new one, read back the records on the
log, and continue with the remaining messages in the same order. So a shard never guesses an outcome, and one message
never blocks the others.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.exactly_once.log_positions import LogPosition, LogPositions, PartitionId, split
from producer_core.delivery.exactly_once.outcome import TransactionOutcome
from producer_core.delivery.exactly_once.ownership import Ownership
from producer_core.delivery.exactly_once.read_back import ReadBack, first_offsets
from producer_core.delivery.exactly_once.transaction_errors import (
    FailureCause,
    failure_cause,
    id_was_taken,
    is_missing_partition,
)
from producer_core.delivery.exactly_once.transactional_client import (
    ClientStopped,
    TransactionalClient,
    TransactionFailed,
)
from producer_core.delivery.transport import ClientQueueFull
from producer_core.errors import JournalError
from producer_core.events import Severity, Verdict
from producer_core.kafka.classify import failure_of
from producer_core.kafka.newer_keys import NEWER_RECORD

logger = queued_logger(__name__)
_new_tuple = tuple.__new__  # for speed: QueuedMessage(…) without a Python call

_SERVE_INTERVAL_S = 0.2
"""Seconds between two polls of an idle client for callbacks."""
_COMMIT_PAUSE_S = 0.005
"""Seconds between a commit and the next transaction. Without this pause the coordinator, still writing the markers,
rejects the request, and the client backs off for longer (measured: +45 % throughput)."""
_PLACEMENT_RETRY_S = 0.2
"""Seconds between two attempts to find another partition for messages whose partition no longer exists."""
_NOTICE_DELAY_S = 5.0
"""Seconds of waiting for the coordinator before a notice is emitted."""
_LIMIT_DURATION_S = 10.0
"""Seconds for which a partition uses small transactions after one of its batches was rejected."""


@dataclass(frozen=True)
class TransactionBounds:
    """When a transaction is full and when the queue is full. Ages and timeouts are in seconds.

    A shard with the native core sends up to `stream_messages` in a transaction, which ends early enough that its oldest
    message is committed within `latency`.
    """

    messages: int
    bytes: int
    age: float
    queue_messages: int
    queue_bytes: int
    transaction_timeout: float
    stream_messages: int
    latency: float


class QueuedMessage(NamedTuple):
    """A message in the queue, the time when it began to wait (monotonic), and its size."""

    delivery: Delivery
    since: float
    size: int

    @property
    def partition(self) -> PartitionId:
        return (self.delivery.topic, self.delivery.partition)


class ShardListener(Protocol):
    """Receive the events of a shard, on its thread. The transport implements it."""

    def report(self, reports: Sequence[Report]) -> None: ...
    def statistics(self, number: int, statistics: Mapping[str, Any]) -> None: ...
    def connection_error(self, error: KafkaError) -> None: ...
    def notice(self, kind: str, severity: Severity, text: str) -> None: ...
    def fenced(self, transactional_id: str) -> None: ...
    def wait_all_fenced(self, number: int, stopping: threading.Event) -> None: ...
    def reassign_partitions(self, deliveries: Sequence[Delivery]) -> Sequence[Report]: ...


class Shard:
    """Send the messages of some partitions, exactly once.

    Any thread may call `produce`, `purge` and `outstanding`. Everything else runs on the shard's thread.
    """

    def __init__(
        self,
        number: int,
        transactional_id: str,
        *,
        settings: Mapping[str, Any],
        positions: LogPositions,
        bounds: TransactionBounds,
        listener: ShardListener,
        owns: Callable[[PartitionId], bool],
        also_fence: Sequence[str] = (),
    ) -> None:
        self._number = number
        self._id = transactional_id
        self._settings = settings
        self._positions = positions
        self._bounds = bounds
        self._listener = listener
        self._owns = owns
        self._also_fence = also_fence
        self._stopping = threading.Event()
        self._lock = threading.RLock()  # guards the five fields below
        self._changed = threading.Condition(self._lock)
        self._queue: deque[QueuedMessage] = deque()
        self._bytes = 0
        self._current = 0  # messages in the running transaction
        self._purged = False
        self._unconfirmed: set[bytes] = set()  # sent, and not read back yet
        self.recovered = threading.Event()  # all records of earlier processes have been read back
        self._client: TransactionalClient | None = None
        self._limits: dict[PartitionId, tuple[int, float]] = {}
        self._failure_text: str | None = None
        self._failures = 0  # failed transactions in a row
        self._ownership = Ownership(number)
        self._id_taken = threading.Event()  # another process has this producer's transactional ids
        self._read_back = ReadBack(
            settings, self._wait, self._on_read_back_notice, listener.connection_error, positions.number
        )
        self._thread = threading.Thread(target=self._run, name=f"producer-core-shard-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    def yield_id(self) -> None:
        """Stop after the running transaction and keep the queue. Any thread may call it."""
        self._id_taken.set()
        with self._changed:
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    # the queue

    def produce(self, delivery: Delivery) -> None:
        bounds, size = self._bounds, _size(delivery)
        with self._lock:  # for speed: the condition's own `with` is Python code
            waiting = len(self._queue)
            if waiting >= bounds.queue_messages or self._bytes >= bounds.queue_bytes:
                raise ClientQueueFull
            self._queue.append(_new_tuple(QueuedMessage, (delivery, time.monotonic(), size)))
            self._bytes += size
            if not waiting or self._is_full():
                self._changed.notify_all()

    def outstanding(self) -> int:
        return len(self._queue) + self._current

    def purge(self) -> None:
        """Report the queued messages: as written if they were found, otherwise as purged. Does not abort a transaction."""
        with self._changed:
            self._purged = True
            given_up, self._queue, self._bytes = list(self._queue), deque(), 0
        self._give_up(given_up)

    def _give_up(self, waiting: Sequence[QueuedMessage]) -> None:
        written, superseded, rest = split([one.delivery for one in waiting], self._positions)
        try:
            self._positions.settle(written)
        except (JournalError, OSError):
            written, superseded, rest = [], [], [one.delivery for one in waiting]
        purged = KafkaError(KafkaError._PURGE_QUEUE, "purged before its transaction was committed")
        recovered = self.recovered.is_set()
        reports: list[Report] = [
            (one, None, TransactionOutcome(one, None, position)) for one, position in written
        ]
        reports += [(one, purged, TransactionOutcome(one, None)) for one in superseded]
        for one in rest:
            absent = (
                recovered and one.id not in self._unconfirmed and self._positions.position(one.id) is None
            )
            reports.append((one, purged, TransactionOutcome(one, "not_sent" if absent else None)))
        self._listener.report(reports)

    def _is_full(self) -> bool:
        bounds = self._bounds
        return (
            len(self._queue) >= min(bounds.messages, bounds.queue_messages)
            or self._bytes >= min(bounds.bytes, bounds.queue_bytes)
            or self._purged
        )

    def _collect(self) -> list[QueuedMessage]:
        """Return the messages of the next transaction, once there are enough or the first is old enough."""
        while True:
            with self._changed:
                if self._id_taken.is_set():
                    raise _IdTaken
                left = self._time_left()
                if left <= 0:
                    batch = self._take_batch()
                    self._current = len(batch)
                    return batch
                self._changed.wait(min(left, _SERVE_INTERVAL_S))
            self._serve()

    def _time_left(self) -> float:
        if not self._queue:
            return _SERVE_INTERVAL_S
        return 0.0 if self._is_full() else self._queue[0].since + self._bounds.age - time.monotonic()

    def _take_batch(self) -> list[QueuedMessage]:
        now = time.monotonic()
        self._limits = {partition: limit for partition, limit in self._limits.items() if limit[1] > now}
        limits = {partition: limit for partition, (limit, _) in self._limits.items()}
        batch, skipped = take_batch(self._queue, self._bounds.messages, self._bounds.bytes, limits)
        self._queue.extendleft(reversed(skipped))
        self._bytes -= sum(one.size for one in batch)
        return batch

    def _put_back(self, batch: Sequence[QueuedMessage], *, current: int | None = 0) -> None:
        with self._changed:
            self._current = self._current if current is None else current
            purged = self._purged
            if not purged:
                self._queue.extendleft(reversed(batch))
                self._bytes += sum(one.size for one in batch)
                self._changed.notify_all()
        if purged:
            self._give_up(batch)

    # the thread

    def _run(self) -> None:
        try:
            self._recover_earlier()
            while True:
                batch = self._collect()
                try:
                    self._process_batch(batch)
                finally:
                    self._current = 0
        except ClientStopped:
            pass
        except _IdTaken:
            self._listener.fenced(self._id)
        except Exception:
            logger.exception(**with_fields("shard stopped", transactional_id=self._id))
            text = "An internal error stopped part of exactly-once delivery. The journal keeps its messages."
            self._listener.notice("shard_ended", "critical", text)
        finally:
            if self._client is not None:
                self._client.destroy()

    def _recover_earlier(self) -> None:
        for other in self._also_fence:
            self._fence(other).destroy()
        self._client = self._fence(self._id)
        self._listener.wait_all_fenced(self._number, self._stopping)
        self._find_start_offsets()
        self._read_back_partitions(
            partition for partition in self._positions.partitions() if self._owns(partition)
        )
        self.recovered.set()

    def _find_start_offsets(self) -> None:
        """Store start offsets for partitions to which an earlier process may have sent unsettled messages."""
        offsets = self._read_back.start_offsets(
            self._positions.unsettled_topics,
            lambda partition: self._owns(partition) and self._positions.settled_offset(partition) is None,
        )
        self._write_state(lambda: self._positions.start_partitions(offsets))

    def _process_batch(self, batch: Sequence[QueuedMessage]) -> None:
        """Process one batch: settle the messages already in the log and send the rest in one transaction."""
        written, superseded, rest = split([one.delivery for one in batch], self._positions)
        self._hold_back(superseded)
        self._settle_written(written)
        rest = self._start_new_partitions(rest)
        if rest:
            sent = set(map(id, rest))
            self._transact(rest, [one for one in batch if id(one.delivery) in sent])

    def _start_new_partitions(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Store start offsets for partitions never written to, and reject messages for partitions that do not exist."""
        new = {(one.topic, one.partition) for one in deliveries}
        new = {partition for partition in new if self._positions.settled_offset(partition) is None}
        if not new:
            return list(deliveries)
        offsets = first_offsets(self._read_back(dict.fromkeys(new), self._positions.is_own), sorted(new))
        self._write_state(lambda: self._positions.start_partitions(offsets))
        missing = new - offsets.keys()
        if missing:
            error = KafkaError(KafkaError._UNKNOWN_PARTITION, "the topic has no such partition")
            rejected = [one for one in deliveries if (one.topic, one.partition) in missing]
            self._report_rejected([(one, error, TransactionOutcome(one, "not_sent")) for one in rejected])
        return [one for one in deliveries if (one.topic, one.partition) not in missing]

    def _transact(self, deliveries: Sequence[Delivery], waiting: Sequence[QueuedMessage]) -> None:
        started = time.monotonic()
        self._unconfirmed = {one.id for one in deliveries}
        client = self._current_client()
        try:
            reports, rejected = client.transact(deliveries, started + self._bounds.transaction_timeout)
        except TransactionFailed as failure:
            self._put_back(waiting)
            self._on_failed_transaction(failure, deliveries, time.monotonic() - started)
            return
        self._settle_written([(delivery, _position_of(message)) for delivery, _, message in reports], started)
        self._report_rejected(
            [(one, error, TransactionOutcome(one, "not_sent")) for one, error, _ in rejected]
        )
        self._unconfirmed = set()
        self._report_recovered()
        self._pause_after_commit()

    def _pause_after_commit(self) -> None:
        self._wait(_COMMIT_PAUSE_S)

    def _report_rejected(self, rejected: Sequence[Report]) -> None:
        """Report rejections, except of messages that can go to another partition because theirs no longer exists."""
        moving = [
            one
            for one, error, _ in rejected
            if error and is_missing_partition(error) and one.placement.computed
        ]
        moved = set(map(id, moving))
        self._listener.report([report for report in rejected if id(report[0]) not in moved])
        moving += self._take_from_queue({(one.topic, one.partition) for one in moving})
        while moving:
            if self._purged:
                return self._give_up([QueuedMessage(one, 0.0, 0) for one in moving])
            try:
                return self._listener.report(self._listener.reassign_partitions(moving))
            except ClientQueueFull:  # the brokers do not return the partitions yet
                self._wait(_PLACEMENT_RETRY_S)
        return None

    def _take_from_queue(self, partitions: set[PartitionId]) -> list[Delivery]:
        """Remove the queued messages of these partitions that may go to another one, and return them in order."""
        if not partitions:
            return []
        with self._changed:
            removed = [
                one for one in self._queue if one.partition in partitions and one.delivery.placement.computed
            ]
            ids = set(map(id, removed))
            self._queue = deque(one for one in self._queue if id(one) not in ids)
            self._bytes -= sum(one.size for one in removed)
        return [one.delivery for one in removed]

    def insert_first(self, deliveries: Sequence[Delivery]) -> None:
        """Queue messages of a deleted partition before newer ones of their keys. Any thread may call it."""
        self._put_back([QueuedMessage(one, time.monotonic(), _size(one)) for one in deliveries], current=None)

    def _settle_written(
        self, written: Sequence[tuple[Delivery, LogPosition]], started: float | None = None
    ) -> None:
        """Settle committed messages, then report them."""
        if not written:
            return
        if started is not None and (
            restarted := self._positions.recreated(position for _, position in written)
        ):
            self._write_state(lambda: self._positions.restart_partitions(restarted))
        self._write_state(lambda: self._positions.settle(written))
        latency = None if started is None else time.monotonic() - started
        self._listener.report(
            [(one, None, TransactionOutcome(one, None, position, latency)) for one, position in written]
        )

    def _hold_back(self, superseded: Sequence[Delivery]) -> None:
        """Report messages that may have been compacted away. They are not sent, because a newer record has their key."""
        error = KafkaError(KafkaError._OUTDATED, NEWER_RECORD)
        self._listener.report(
            [
                (one, error, TransactionOutcome(one, "inconclusive", held_back=NEWER_RECORD))
                for one in superseded
            ]
        )

    def _write_state(self, write: Callable[[], None]) -> None:
        """Retry until the journal can be written. Until then the shard waits; the records are safe in the log."""
        reported = False
        while True:
            try:
                write()
            except (JournalError, OSError) as error:
                if not reported:
                    reported = True
                    self._listener.notice(
                        "journal_full", "critical", f"Deliveries cannot be recorded in the journal: {error}"
                    )
                self._wait(0.5)
            else:
                if reported:
                    text = "Deliveries are recorded in the journal again."
                    self._listener.notice("journal_available", "info", text)
                return

    # failed transactions

    def _on_failed_transaction(
        self, failure: TransactionFailed, deliveries: Sequence[Delivery], lasted: float
    ) -> None:
        if id_was_taken(failure.error.name(), lasted=lasted, timeout=self._bounds.transaction_timeout):
            self._wait_to_take_back()
        sent = Counter((one.topic, one.partition) for one in deliveries)
        cause = failure_cause([(one, problem) for one, problem, _ in failure.reports], sent)
        if not self._is_explained(failure, cause):
            self._report_failing(
                f"A transaction failed ({failure}). The log is read back before anything is sent again."
            )
        self._recover(sent)
        self._drop_rejected(cause)

    def _is_explained(self, failure: TransactionFailed, cause: FailureCause) -> bool:
        """Return whether the rejection of a record is the cause, so that its dead letter tells the operator."""
        return bool(cause.rejected or cause.limits)

    def _wait_to_take_back(self) -> None:
        """Wait before taking the transactional id back. Raise _IdTaken when another producer keeps it."""
        wait = self._ownership.record_loss(explained=self._current_client().fenced_after_disconnect)
        if wait is None or self._id_taken.is_set():
            raise _IdTaken
        self._current_client().destroy()
        self._report_failing(
            f"Another process, or a late request from a process that was killed, took the transactional id {self._id}. "
            f"This producer takes it back ({self._ownership.losses} of {self._ownership.attempts}) and stops if the other process "
            "keeps using it. Two running producers must not share a transactional id."
        )
        self._pause(wait)

    def _recover(self, partitions: Iterable[PartitionId]) -> None:
        """Fence with a new client, then read back the records that the old one left on these partitions."""
        self._current_client().destroy()
        if self._failures > 1:
            self._pause(min(5.0, 0.1 * 2 ** min(self._failures, 6)))
        self._client = self._fence(self._id)
        self._read_back_partitions(partitions)
        self._unconfirmed = set()

    def _drop_rejected(self, cause: FailureCause) -> None:
        """Remove permanently rejected messages from the queue, now that the read-back has not found them in the log."""
        rejected = {
            one.id: (one, error) for one, error in cause.rejected if self._positions.position(one.id) is None
        }
        with self._changed:
            kept = [one for one in self._queue if one.delivery.id not in rejected]
            self._queue = deque(kept)
            self._bytes = sum(one.size for one in kept)
        reports: list[Report] = []
        for one, error in rejected.values():
            verdict: Verdict = "not_sent" if failure_of(error).verdict == "not_sent" else "rejected"
            reports.append((one, error, TransactionOutcome(one, verdict)))
        self._report_rejected(reports)
        until = time.monotonic() + _LIMIT_DURATION_S
        for partition in {(one.topic, one.partition) for one, _ in rejected.values()}:
            self._limits.pop(partition, None)
        self._limits |= {partition: (limit, until) for partition, limit in cause.limits.items()}

    def _fence(self, transactional_id: str) -> TransactionalClient:
        started, reported = time.monotonic(), False

        def waiting(error: KafkaError) -> None:
            nonlocal reported
            if not reported and time.monotonic() - started > _NOTICE_DELAY_S:
                reported = True
                self._report_failing(
                    f"The transaction coordinator is not responding: {error.name()}: {error.str()}"
                )

        attempts = 0
        while True:
            client = self._connect(transactional_id)
            try:
                client.fence(waiting)
                return client
            except TransactionFailed as failure:
                client.destroy()
                self._report_failing(
                    f"The transactional id {transactional_id} cannot be used: {failure}", "critical"
                )
            except BaseException:
                client.destroy()
                raise
            attempts += 1
            self._pause(min(5.0, 0.1 * 2 ** min(attempts, 6)))

    @property
    def _client_type(self) -> type[TransactionalClient]:
        return TransactionalClient

    def _connect(self, transactional_id: str) -> TransactionalClient:
        return self._client_type(
            self._settings,
            transactional_id,
            statistics=lambda statistics: self._listener.statistics(self._number, statistics),
            connection_error=self._listener.connection_error,
            stopping=self._stopping.is_set,
        )

    def _read_back_partitions(self, partitions: Iterable[PartitionId]) -> None:
        offsets = {partition: self._positions.settled_offset(partition) for partition in partitions}
        offsets = {
            partition: settled_offset
            for partition, settled_offset in offsets.items()
            if settled_offset is not None
        }
        if not offsets:
            return
        with self._changed:
            queued = {one.delivery.id for one in self._queue}
        result = self._read_back(offsets, lambda id: self._positions.is_own(id) or id in queued)
        for kind, text in result.notices:
            self._listener.notice(kind, "warning" if kind == "evidence_removed" else "critical", text)
        if result.gone:
            self._write_state(lambda: self._positions.restart_partitions(result.gone))
        for partition, records in result.found.items():
            self._positions.set_found(partition, records, queued)
        for partition, later in result.later.items():
            self._positions.add_later_keys(
                partition, later, self._unconfirmed if self.recovered.is_set() else None
            )

    # notices and waiting

    def _current_client(self) -> TransactionalClient:
        if self._client is None:
            raise AssertionError("no client yet")
        return self._client

    def _report_failing(self, text: str, severity: Severity = "warning") -> None:
        self._failures += 1
        if self._failure_text is None:
            self._listener.notice("transactions_failing", severity, text)
        self._failure_text = text

    def _report_recovered(self) -> None:
        self._failures = 0
        if self._failure_text is not None:
            self._failure_text = None
            text = "Commits are succeeding again. No message of the failed transactions was sent twice."
            self._listener.notice("transactions_recovered", "info", text)

    def _on_read_back_notice(self, kind: str, text: str) -> None:
        self._listener.notice(kind, "info" if kind == "read_back_done" else "warning", text)

    def _serve(self) -> None:
        if self._stopping.is_set():
            raise ClientStopped
        if self._client is not None:
            self._client.serve()

    def _wait(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise ClientStopped
        if self._client is not None and self._client.alive:
            self._client.serve()

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise ClientStopped


class _IdTaken(Exception):
    """Another process uses this producer's transactional id."""


def take_batch(
    queue: deque[QueuedMessage], messages: int, size: int, limits: Mapping[PartitionId, int]
) -> tuple[list[QueuedMessage], list[QueuedMessage]]:
    """Take a transaction's messages from the front of the queue.

    Return them and the messages skipped because their partition is limited. Keeps the order within each partition and
    takes at least one message.
    """
    batch: list[QueuedMessage] = []
    skipped: list[QueuedMessage] = []
    counts: Counter[PartitionId] = Counter()
    total = 0
    while queue and len(batch) < messages and len(skipped) < messages and (total < size or not batch):
        one = queue.popleft()
        if limits:
            if counts[one.partition] >= limits.get(one.partition, messages):
                skipped.append(one)
                continue
            counts[one.partition] += 1
        batch.append(one)
        total += one.size
    return batch, skipped


def _size(delivery: Delivery) -> int:
    return 100 + len(delivery.value or b"") + len(delivery.key or b"")


def _position_of(message: Any) -> LogPosition:
    return LogPosition(message.topic(), message.partition(), message.offset(), message.timestamp()[1])

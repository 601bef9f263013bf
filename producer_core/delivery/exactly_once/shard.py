"""A shard: one transactional id and one thread, which collects messages, commits them in transactions, and recovers.

Whatever goes wrong with a transaction has one answer: destroy the client, fence with a new one, read back what is
on the log, and go on with the rest in the same order. So a shard never guesses, and never blocks on one message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError

from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.exactly_once.log_positions import LogPosition, LogPositions, Where, split
from producer_core.delivery.exactly_once.outcome import TransactionOutcome
from producer_core.delivery.exactly_once.ownership import Ownership
from producer_core.delivery.exactly_once.read_back import ReadBack, starts
from producer_core.delivery.exactly_once.transaction_errors import (
    FailureCause,
    failure_cause,
    is_gone,
    lost_the_id,
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

logger = logging.getLogger(__name__)

_IDLE = 0.2
"""Seconds between two looks at an idle client's callbacks."""
_BREATH = 0.005
"""Seconds between a commit and the next transaction: without them the coordinator, still busy with the markers,
refuses, and the client backs off longer (measured: +45 % throughput)."""
_AGAIN = 0.2
"""Seconds between two tries to find another partition for messages whose own is gone."""
_PATIENCE = 5.0
"""Seconds that waiting for the coordinator goes without a word."""
_LIMIT_LASTS = 10.0
"""Seconds a partition goes on in small transactions after a batch of it was refused."""


@dataclass(frozen=True)
class TransactionBounds:
    """When a transaction is full, and when the queue is; ages and time-outs in seconds."""

    messages: int
    bytes: int
    age: float
    queue_messages: int
    queue_bytes: int
    transaction_timeout: float


class WaitingMessage(NamedTuple):
    """A message in the queue, since when (monotonic), and its size."""

    delivery: Delivery
    since: float
    size: int

    @property
    def where(self) -> Where:
        return (self.delivery.topic, self.delivery.partition)


class ShardListener(Protocol):
    """What a shard tells; the transport. Calls come from the shard's thread."""

    def report(self, reports: Sequence[Report]) -> None: ...
    def statistics(self, number: int, statistics: Mapping[str, Any]) -> None: ...
    def connection_error(self, error: KafkaError) -> None: ...
    def notice(self, kind: str, severity: Severity, text: str) -> None: ...
    def fenced(self, transactional_id: str) -> None: ...
    def wait_all_fenced(self, number: int, stopping: threading.Event) -> None: ...
    def place_again(self, deliveries: Sequence[Delivery]) -> Sequence[Report]: ...


class Shard:
    """`produce`, `purge` and `outstanding` are for any thread; all else happens on the shard's own."""

    def __init__(
        self,
        number: int,
        transactional_id: str,
        *,
        settings: Mapping[str, Any],
        ledger: LogPositions,
        bounds: TransactionBounds,
        owner: ShardListener,
        is_mine: Callable[[Where], bool],
        also_fence: Sequence[str] = (),
    ) -> None:
        self._number = number
        self._id = transactional_id
        self._settings = settings
        self._ledger = ledger
        self._bounds = bounds
        self._owner = owner
        self._is_mine = is_mine
        self._also_fence = also_fence
        self._stopping = threading.Event()
        self._changed = threading.Condition()  # guards the five fields below
        self._queue: deque[WaitingMessage] = deque()
        self._bytes = 0
        self._current = 0  # messages in the running transaction
        self._purged = False
        self._doubtful: set[bytes] = set()  # sent, and not read back since
        self.recovered = threading.Event()  # everything that earlier processes left was read back
        self._client: TransactionalClient | None = None
        self._limits: dict[Where, tuple[int, float]] = {}
        self._trouble: str | None = None
        self._failures = 0  # transactions in a row
        self._ownership = Ownership(number)
        self._giving_way = threading.Event()  # another process has the ids of this one
        self._read_back = ReadBack(settings, self._wait, self._warn, owner.connection_error, ledger.number)
        self._thread = threading.Thread(target=self._run, name=f"producer-core-shard-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    def give_way(self) -> None:
        """End after the running transaction, and leave the queue as it is. For any thread."""
        self._giving_way.set()
        with self._changed:
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    # the queue

    def produce(self, delivery: Delivery) -> None:
        size = _size(delivery)
        with self._changed:
            if len(self._queue) >= self._bounds.queue_messages or self._bytes >= self._bounds.queue_bytes:
                raise ClientQueueFull
            self._queue.append(WaitingMessage(delivery, time.monotonic(), size))
            self._bytes += size
            if len(self._queue) == 1 or self._is_full():
                self._changed.notify_all()

    def outstanding(self) -> int:
        return len(self._queue) + self._current

    def purge(self) -> None:
        """Report what waits: as landed where it was found, else as given up. A running transaction still ends."""
        with self._changed:
            self._purged = True
            given_up, self._queue, self._bytes = list(self._queue), deque(), 0
        self._give_up(given_up)

    def _give_up(self, waiting: Sequence[WaitingMessage]) -> None:
        landed, superseded, rest = split([one.delivery for one in waiting], self._ledger)
        try:
            self._ledger.settle(landed)
        except (JournalError, OSError):
            landed, superseded, rest = [], [], [one.delivery for one in waiting]
        gone = KafkaError(KafkaError._PURGE_QUEUE, "given up before its transaction was committed")
        proved = self.recovered.is_set()
        reports: list[Report] = [(one, None, TransactionOutcome(one, None, place)) for one, place in landed]
        reports += [(one, gone, TransactionOutcome(one, None)) for one in superseded]
        for one in rest:
            absent = proved and one.id not in self._doubtful and self._ledger.place(one.id) is None
            reports.append((one, gone, TransactionOutcome(one, "not_sent" if absent else None)))
        self._owner.report(reports)

    def _is_full(self) -> bool:
        bounds = self._bounds
        return (
            len(self._queue) >= min(bounds.messages, bounds.queue_messages)
            or self._bytes >= min(bounds.bytes, bounds.queue_bytes)
            or self._purged
        )

    def _collect(self) -> list[WaitingMessage]:
        """The next transaction's messages: when there are enough of them, or the first is old enough."""
        while True:
            with self._changed:
                if self._giving_way.is_set():
                    raise _TakenOver
                left = self._time_left()
                if left <= 0:
                    batch = self._take()
                    self._current = len(batch)
                    return batch
                self._changed.wait(min(left, _IDLE))
            self._serve()

    def _time_left(self) -> float:
        if not self._queue:
            return _IDLE
        return 0.0 if self._is_full() else self._queue[0].since + self._bounds.age - time.monotonic()

    def _take(self) -> list[WaitingMessage]:
        now = time.monotonic()
        self._limits = {where: limit for where, limit in self._limits.items() if limit[1] > now}
        limits = {where: limit for where, (limit, _) in self._limits.items()}
        batch, left = take(self._queue, self._bounds.messages, self._bounds.bytes, limits)
        self._queue.extendleft(reversed(left))
        self._bytes -= sum(one.size for one in batch)
        return batch

    def _put_back(self, batch: Sequence[WaitingMessage], *, current: int | None = 0) -> None:
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
            self._begin()
            while True:
                batch = self._collect()
                try:
                    self._round(batch)
                finally:
                    self._current = 0
        except ClientStopped:
            pass
        except _TakenOver:
            self._owner.fenced(self._id)
        except Exception:
            logger.exception("shard ended", extra={"transactional_id": self._id})
            text = "A part of the exactly-once delivery ended by a mistake of ours; what it held is in the journal."
            self._owner.notice("shard_ended", "critical", text)
        finally:
            if self._client is not None:
                self._client.destroy()

    def _begin(self) -> None:
        for other in self._also_fence:
            self._fence(other).destroy()
        self._client = self._fence(self._id)
        self._owner.wait_all_fenced(self._number, self._stopping)
        self._find_beginnings()
        self._look(where for where in self._ledger.partitions() if self._is_mine(where))
        self.recovered.set()

    def _find_beginnings(self) -> None:
        """Write down where partitions begin to which an earlier process may have sent what is unsettled."""
        began = self._read_back.beginnings(
            self._ledger.unsettled_topics,
            lambda where: self._is_mine(where) and self._ledger.off(where) is None,
        )
        self._durably(lambda: self._ledger.begin(began))

    def _round(self, batch: Sequence[WaitingMessage]) -> None:
        """One batch: what was found is settled, the rest sent in one transaction."""
        landed, superseded, rest = split([one.delivery for one in batch], self._ledger)
        self._hold_back(superseded)
        self._landed(landed)
        rest = self._known(rest)
        if rest:
            sent = set(map(id, rest))
            self._transact(rest, [one for one in batch if id(one.delivery) in sent])

    def _known(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Writes down where partitions begin that we never wrote to; those that do not exist are refused."""
        new = {(one.topic, one.partition) for one in deliveries}
        new = {where for where in new if self._ledger.off(where) is None}
        if not new:
            return list(deliveries)
        began = starts(self._read_back(dict.fromkeys(new), self._ledger.is_own), sorted(new))
        self._durably(lambda: self._ledger.begin(began))
        missing = new - began.keys()
        if missing:
            error = KafkaError(KafkaError._UNKNOWN_PARTITION, "the topic has no such partition")
            refused = [one for one in deliveries if (one.topic, one.partition) in missing]
            self._displaced([(one, error, TransactionOutcome(one, "not_sent")) for one in refused])
        return [one for one in deliveries if (one.topic, one.partition) not in missing]

    def _transact(self, deliveries: Sequence[Delivery], waiting: Sequence[WaitingMessage]) -> None:
        began = time.monotonic()
        self._doubtful = {one.id for one in deliveries}
        client = self._live()
        try:
            reports, refused = client.transact(deliveries, began + self._bounds.transaction_timeout)
        except TransactionFailed as failure:
            self._put_back(waiting)
            self._after(failure, deliveries, time.monotonic() - began)
            return
        self._landed([(delivery, _place(message)) for delivery, _, message in reports], began)
        self._displaced([(one, error, TransactionOutcome(one, "not_sent")) for one, error, _ in refused])
        self._doubtful = set()
        self._well()
        self._wait(_BREATH)

    def _displaced(self, refused: Sequence[Report]) -> None:
        """Report refusals, except of messages that can go to another partition because theirs is gone."""
        moving = [one for one, error, _ in refused if error and is_gone(error) and one.placement.computed]
        moved = set(map(id, moving))
        self._owner.report([report for report in refused if id(report[0]) not in moved])
        moving += self._take_out({(one.topic, one.partition) for one in moving})
        while moving:
            if self._purged:
                return self._give_up([WaitingMessage(one, 0.0, 0) for one in moving])
            try:
                return self._owner.report(self._owner.place_again(moving))
            except ClientQueueFull:  # the brokers do not say yet which partitions there are
                self._wait(_AGAIN)
        return None

    def _take_out(self, partitions: set[Where]) -> list[Delivery]:
        """Remove the queued messages of these partitions that may go to another one, in their order."""
        if not partitions:
            return []
        with self._changed:
            found = [
                one for one in self._queue if one.where in partitions and one.delivery.placement.computed
            ]
            taken = set(map(id, found))
            self._queue = deque(one for one in self._queue if id(one) not in taken)
            self._bytes -= sum(one.size for one in found)
        return [one.delivery for one in found]

    def insert_first(self, deliveries: Sequence[Delivery]) -> None:
        """Take messages of a partition that is gone, before newer ones of their keys. For any thread."""
        self._put_back(
            [WaitingMessage(one, time.monotonic(), _size(one)) for one in deliveries], current=None
        )

    def _landed(self, landed: Sequence[tuple[Delivery, LogPosition]], began: float | None = None) -> None:
        """On the log for good: written down once, then reported."""
        if not landed:
            return
        if began is not None and (again := self._ledger.made_again(place for _, place in landed)):
            self._durably(lambda: self._ledger.begin_again(again))
        self._durably(lambda: self._ledger.settle(landed))
        latency = None if began is None else time.monotonic() - began
        self._owner.report(
            [(one, None, TransactionOutcome(one, None, place, latency)) for one, place in landed]
        )

    def _hold_back(self, superseded: Sequence[Delivery]) -> None:
        """Report what may have been written and compacted away: a newer record of its key is there, so it is not sent."""
        error = KafkaError(KafkaError._OUTDATED, NEWER_RECORD)
        self._owner.report(
            [
                (one, error, TransactionOutcome(one, "inconclusive", held_back=NEWER_RECORD))
                for one in superseded
            ]
        )

    def _durably(self, write: Callable[[], None]) -> None:
        """A journal that cannot be written to stops us; the log has the records, and a restart would find them."""
        said = False
        while True:
            try:
                return write()
            except (JournalError, OSError) as error:
                if not said:
                    said = True
                    self._owner.notice(
                        "journal_full", "critical", f"Deliveries cannot be written down: {error}"
                    )
                self._wait(0.5)

    # when a transaction failed

    def _after(self, failure: TransactionFailed, deliveries: Sequence[Delivery], lasted: float) -> None:
        if lost_the_id(failure.error.name(), lasted=lasted, timeout=self._bounds.transaction_timeout):
            self._wait_to_take_back()
        sent = Counter((one.topic, one.partition) for one in deliveries)
        judged = failure_cause([(one, problem) for one, problem, _ in failure.reports], sent)
        if not (judged.guilty or judged.limits):
            self._ill(
                f"A transaction failed ({failure}); the log is read back before anything is sent again."
            )
        self._recover(sent)
        self._punish(judged)

    def _wait_to_take_back(self) -> None:
        """Wait until the transactional id may be taken back; raise _TakenOver when another producer keeps it."""
        wait = self._ownership.lost(explained=self._live().fenced_in_trouble)
        if wait is None or self._giving_way.is_set():
            raise _TakenOver
        self._live().destroy()
        self._ill(
            f"Another process, or a late request of one that was killed, took the transactional id {self._id}. This "
            f"producer takes it back ({self._ownership.losses} of {self._ownership.attempts}) and stops if the other "
            "one keeps coming back. Two running producers must not share a transactional id."
        )
        self._pause(wait)

    def _recover(self, partitions: Iterable[Where]) -> None:
        """A new client, fenced; then everything that the old one left on these partitions is read back."""
        self._live().destroy()
        if self._failures > 1:
            self._pause(min(5.0, 0.1 * 2 ** min(self._failures, 6)))
        self._client = self._fence(self._id)
        self._look(partitions)
        self._doubtful = set()

    def _punish(self, judged: FailureCause) -> None:
        """Takes out what can never be written, now that it is proved not to be there."""
        guilty = {one.id: (one, error) for one, error in judged.guilty if self._ledger.place(one.id) is None}
        with self._changed:
            kept = [one for one in self._queue if one.delivery.id not in guilty]
            self._queue = deque(kept)
            self._bytes = sum(one.size for one in kept)
        reports: list[Report] = []
        for one, error in guilty.values():
            verdict: Verdict = "not_sent" if failure_of(error).verdict == "not_sent" else "rejected"
            reports.append((one, error, TransactionOutcome(one, verdict)))
        self._displaced(reports)
        until = time.monotonic() + _LIMIT_LASTS
        for where in {(one.topic, one.partition) for one, _ in guilty.values()}:
            self._limits.pop(where, None)
        self._limits |= {where: (limit, until) for where, limit in judged.limits.items()}

    def _fence(self, transactional_id: str) -> TransactionalClient:
        began, said = time.monotonic(), False

        def waiting(error: KafkaError) -> None:
            nonlocal said
            if not said and time.monotonic() - began > _PATIENCE:
                said = True
                self._ill(f"The transaction coordinator does not answer: {error.name()}: {error.str()}")

        tries = 0
        while True:
            client = self._connect(transactional_id)
            try:
                client.fence(waiting)
                return client
            except TransactionFailed as failure:
                client.destroy()
                self._ill(f"The transactional id {transactional_id} cannot be used: {failure}", "critical")
            except BaseException:
                client.destroy()
                raise
            tries += 1
            self._pause(min(5.0, 0.1 * 2 ** min(tries, 6)))

    def _connect(self, transactional_id: str) -> TransactionalClient:
        return TransactionalClient(
            self._settings,
            transactional_id,
            statistics=lambda statistics: self._owner.statistics(self._number, statistics),
            connection_error=self._owner.connection_error,
            stopping=self._stopping.is_set,
        )

    def _look(self, partitions: Iterable[Where]) -> None:
        offsets = {where: self._ledger.off(where) for where in partitions}
        offsets = {where: off for where, off in offsets.items() if off is not None}
        if not offsets:
            return
        with self._changed:
            in_hand = {one.delivery.id for one in self._queue}
        seen = self._read_back(offsets, lambda id: self._ledger.is_own(id) or id in in_hand)
        for kind, text in seen.remarks:
            self._owner.notice(kind, "warning" if kind == "evidence_removed" else "critical", text)
        if seen.gone:
            self._durably(lambda: self._ledger.begin_again(seen.gone))
        for where, records in seen.found.items():
            self._ledger.found(where, records, in_hand)
        for where, later in seen.later.items():
            self._ledger.saw(where, later, self._doubtful if self.recovered.is_set() else None)

    # telling, waiting

    def _live(self) -> TransactionalClient:
        if self._client is None:
            raise AssertionError("no client yet")
        return self._client

    def _ill(self, text: str, severity: Severity = "warning") -> None:
        self._failures += 1
        if self._trouble is None:
            self._owner.notice("transactions_failing", severity, text)
        self._trouble = text

    def _well(self) -> None:
        self._failures = 0
        if self._trouble is not None:
            self._trouble = None
            text = "Transactions are committed again. No message of the failed ones was sent twice."
            self._owner.notice("transactions_recovered", "info", text)

    def _warn(self, kind: str, text: str) -> None:
        self._owner.notice(kind, "info" if kind == "read_back_done" else "warning", text)

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


class _TakenOver(Exception):
    """Another process uses our transactional id."""


def take(
    queue: deque[WaitingMessage], messages: int, size: int, limits: Mapping[Where, int]
) -> tuple[list[WaitingMessage], list[WaitingMessage]]:
    """Takes a transaction's messages off the front: (those, what was passed over because its partition is limited).

    Never changes the order within a partition; takes at least one.
    """
    batch: list[WaitingMessage] = []
    passed: list[WaitingMessage] = []
    taken: Counter[Where] = Counter()
    total = 0
    while queue and len(batch) < messages and len(passed) < messages and (total < size or not batch):
        one = queue.popleft()
        if limits and taken[one.where] >= limits.get(one.where, messages):
            passed.append(one)
            continue
        batch.append(one)
        taken[one.where] += 1
        total += one.size
    return batch, passed


def _size(delivery: Delivery) -> int:
    return 100 + len(delivery.value or b"") + len(delivery.key or b"")


def _place(message: Any) -> LogPosition:
    return LogPosition(message.topic(), message.partition(), message.offset(), message.timestamp()[1])

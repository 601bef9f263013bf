"""Exactly-once replay: the operation's transactional id lets a new owner fence the previous one.

The store records each transaction (claimed records, offsets before it) before it begins and settles it after the
commit. If the outcome of a commit is unknown, the strategy destroys the client, fences it with a new one, and reads the
topics from the recorded offsets: records found there are settled, the others are sent again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError

from producer_core._internal.log_fields import with_fields
from producer_core.delivery.dead_letter import ReplayRecord, delivery_of
from producer_core.delivery.delivery import Report
from producer_core.delivery.exactly_once.batch_reports import BatchReports
from producer_core.delivery.exactly_once.log_positions import PartitionId
from producer_core.delivery.exactly_once.read_back import ReadBack, ReadBackResult
from producer_core.delivery.exactly_once.transaction_errors import (
    FENCING,
    is_permanent_rejection,
    rejects_whole_topic,
)
from producer_core.delivery.exactly_once.transactional_client import (
    ClientStopped,
    TransactionalClient,
    TransactionFailed,
)
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.delivery.record_batch import RecordBatch
from producer_core.events import Verdict
from producer_core.kafka.newer_keys import KeyIndex
from producer_core.kafka.partitioner import metadata_count
from producer_core.messages import id_text, parse_id
from producer_core.replay.claims import Floors
from producer_core.replay.guarantee import TRANSACTIONAL_ID
from producer_core.replay.outcome import AcknowledgedBatch, OrphanedRecord, RecordOutcome
from producer_core.replay.phrases import NO_TOPIC
from producer_core.replay.probe_outcome import ProbeOutcome, inconclusive, outcome_after_search
from producer_core.replay.strategy import Guarantee, Interrupt, Interrupted, died_again

logger = logging.getLogger(__name__)

_BYTES = 8 * 1024 * 1024
_REST = 2.0
"""Seconds to wait after a failure, doubled after each further failure up to sixteen times."""
_METADATA_TIMEOUT = 5.0
_DELETED_AFTER = 20.0
"""Seconds after which an unknown topic counts as deleted; a restarting broker may not know its topics yet."""
_REFUSED_BY_CLIENT = "The client refused the record before sending it."
_REFUSED = "The broker rejected the record and its transaction was aborted; the record is not on its topic."

_RecordsById = Mapping[bytes, ReplayRecord]
"""Records by the 24 bytes of their ids."""


@dataclass(frozen=True)
class Supervisor:
    """The callbacks of a replay's owner: `interrupt` returns whether to stop, `say` reports the status, `fenced` runs
    after each fence."""

    interrupt: Interrupt
    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    fenced: Callable[[], None] = lambda: None


class TransactionalReplay:
    """The transactional strategy of one operation in one process.

    The supervisor's `fenced` is called after each fence, before any record is read or sent, and raises ClientStopped if a
    newer owner holds the transactional id. With `yields`, a concurrent attempt may have the same dead letters: a fenced
    instance stops (Interrupted) and does not fence back, and an instance that fenced looks for all its queued records on
    the topic, because the other attempt may have sent them.

    On a topic that may be compacted, a record that is not found and has a newer record with its key is not sent again.
    With `newer` "send" only replayed records count as newer, because the operator accepts that old values come last.

    A `client` that already fenced this id and has no open transaction needs neither `begin` nor `after`: no other client
    has sent under the id unless this client was fenced. In that case its first transaction fails, and all queued records
    are looked for as after any failure.
    """

    guarantee: Guarantee = "exactly_once"

    def __init__(
        self,
        settings: Mapping[str, Any],
        operation_id: str,
        *,
        floors: Floors,
        supervisor: Supervisor,
        most: int,
        yields: bool = False,
        newer: str | None = None,
        client: TransactionalClient | None = None,
    ) -> None:
        self._settings = transactional_settings(settings)
        self._settings["client.id"] = f"replay-{operation_id}"
        self._settings.pop("statistics.interval.ms", None)
        self._id = f"{TRANSACTIONAL_ID}{operation_id}"
        self._floors = {topic: dict(partitions) for topic, partitions in floors.items()}
        self._most = self._limit = most
        self._interrupt, self._say = supervisor.interrupt, supervisor.say
        self._clock, self._fenced = supervisor.clock, supervisor.fenced
        self._yields = yields
        self._newer = newer
        self._count = metadata_count(settings)
        self._read_back = ReadBack(
            settings, self._wait, lambda _, text: supervisor.say(text), self._connection_error
        )
        self._client = client
        self._client_unused = client is not None  # an inherited client without a commit so far
        if client is not None:
            client.reassign(connection_error=self._connection_error, stopping=supervisor.interrupt)
        self._queue: deque[ReplayRecord] = deque()
        self._batches: deque[RecordBatch] = deque()  # sent after the queue
        self._unknown: Sequence[ReplayRecord] = []  # records of a transaction whose outcome is not known yet
        self._begun = False
        self._failures = 0
        self._gone: set[str] = set()  # topics that no longer exist
        self._pause = threading.Event()  # never set; used only to sleep

    @property
    def in_flight(self) -> int:
        return len(self._queue) + sum(map(len, self._batches)) + len(self._unknown)

    @property
    def bytes(self) -> int:
        rows = sum(dead_letter.size for dead_letter in (*self._queue, *self._unknown))
        return rows + sum(batch.size for batch in self._batches)

    @property
    def floors(self) -> Floors:
        return self._floors

    # start and restart

    def begin(self, topics: Sequence[str]) -> None:
        """Fence the previous owner once, then use the end offsets of new topics as their floors."""
        try:
            if not self._begun:
                self._fence()
            self._begun = True
            new = [topic for topic in topics if topic not in self._floors]
            seen = self._read_back(
                {(topic, number): None for topic in new for number in self._numbers(topic)}, _none
            )
        except ClientStopped:
            raise Interrupted from None
        for topic in new:  # a topic created later is read from its first record
            self._floors.setdefault(topic, {})
        for (topic, partition), end in seen.ends.items():
            self._floors[topic][partition] = end - 1

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        try:
            probe = self._search([orphan.dead_letter for orphan in orphans])
        except ClientStopped:
            raise Interrupted from None
        return [outcome_after_search(orphan.dead_letter, probe) for orphan in orphans]

    def _fence(self) -> None:
        while True:
            self._destroy()
            self._wait(0)  # stop here if the lease was lost, so that the new owner is not fenced
            self._client = TransactionalClient(
                self._settings,
                self._id,
                statistics=lambda _: None,
                connection_error=self._connection_error,
                stopping=self._interrupt,
            )
            try:
                self._client.fence(lambda error: self._say(f"Waiting for the brokers: {error.str()}"))
                return self._fenced()
            except TransactionFailed as failed:
                self._rest(f"Cannot begin a transaction: {failed}")

    def _search(self, dead_letters: Sequence[ReplayRecord]) -> ProbeOutcome:
        """Look for the records above the floors of their topics; call it only after a fence."""
        topics = {dead_letter.topic for dead_letter in dead_letters}
        if not topics:
            return ProbeOutcome({})
        missing = {topic for topic in topics if topic in self._gone or self._is_gone(topic)}
        removed = {(topic, number) for topic in missing for number in self._floors.get(topic, {})}
        self._floors.update({topic: {} for topic in missing})
        self._gone |= missing
        offsets = {
            (topic, number): self._floors.get(topic, {}).get(number, -1)
            for topic in topics - missing
            for number in self._numbers(topic)
        }
        wanted = {parse_id(dead_letter.message_id) for dead_letter in dead_letters}
        keys = self._keys(dead_letters)
        seen = self._read_back(offsets, wanted.__contains__, keys)
        self._raise_floors(seen)
        newer = frozenset(one for some in keys.values() for one in some.newer())
        found = {
            id_text(id): (place.partition, place.offset)
            for places in seen.found.values()
            for id, place in places
        }
        return ProbeOutcome(found, frozenset({*removed, *seen.removed, *seen.gone}), newer)

    def _keys(self, dead_letters: Sequence[ReplayRecord]) -> dict[str, KeyIndex]:
        """Return the keys of the dead letters by topic, to compare them with the records read."""
        keys: dict[str, KeyIndex] = {}
        for dead_letter in dead_letters:
            if dead_letter.key is not None:
                of_topic = keys.setdefault(dead_letter.topic, KeyIndex(replays_only=self._newer == "send"))
                of_topic.add(
                    dead_letter.message_id,
                    dead_letter.key,
                    dead_letter.accepted_at,
                    partition=dead_letter.partition,
                )
        return keys

    def _raise_floors(self, seen: ReadBackResult) -> None:
        """Raise the floors to the end offsets read: after a fence no record of this operation is in flight."""
        for (topic, partition), end in seen.ends.items():
            self._floors.setdefault(topic, {})[partition] = end - 1

    def _numbers(self, topic: str) -> range:
        """Return the topic's partitions; none if the topic does not exist."""
        while (count := self._count(topic, _METADATA_TIMEOUT)) is None:
            self._say(f"Waiting for the brokers: the partitions of {topic} are not known yet.")
            self._wait(0.2)
        return range(count)

    # sending

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        if isinstance(dead_letters, RecordBatch) and not self._yields and not self._gone:
            self._batches.append(dead_letters)
            return []
        self._queue_batches()
        self._queue += [dead_letter for dead_letter in dead_letters if dead_letter.topic not in self._gone]
        return self._skip_deleted_topics(dead_letters)

    def _queue_batches(self) -> None:
        """Continue with single records: only batches without any failure are sent as columns."""
        while self._batches:
            self._queue += self._batches.popleft()

    def _skip_deleted_topics(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        """Skip the records of deleted topics; they are not failures, so the guard does not count them."""
        return [
            RecordOutcome(dead_letter.message_id, "skipped", NO_TOPIC)
            for dead_letter in dead_letters
            if dead_letter.topic in self._gone
        ]

    def give_back(self) -> list[RecordOutcome]:
        self._queue_batches()
        outcomes = [RecordOutcome(dead_letter.message_id, "pending") for dead_letter in self._queue]
        self._queue.clear()
        return outcomes

    def gather(self, seconds: float) -> list[RecordOutcome] | AcknowledgedBatch:
        """Send one transaction of queued records and recover if it fails."""
        try:
            if self._unknown:  # an earlier recovery was interrupted
                return self._recover({}, may_have_committed=True)
            if self._queue:
                return self._transact(self._next_batch())
            if self._batches and self._limit < self._most:
                self._queue_batches()
                return self._transact(self._next_batch())
            if self._batches:
                return self._transact_batch(self._next_columns())
            self._wait(seconds)
            return []
        except ClientStopped:
            raise Interrupted from None

    def _next_batch(self) -> list[ReplayRecord]:
        batch: list[ReplayRecord] = []
        size = 0
        while self._queue and len(batch) < self._limit:
            size += self._queue[0].size
            if batch and size > _BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    def _next_columns(self) -> RecordBatch:
        whole = self._batches.popleft()
        batch = whole.first(self._limit, _BYTES)
        if len(batch) < len(whole):
            self._batches.appendleft(whole[len(batch) :])
        return batch

    def _transact_batch(self, batch: RecordBatch) -> list[RecordOutcome] | AcknowledgedBatch:
        """Send one transaction of columns. Records that did not commit are handled one by one."""
        self._unknown = batch
        deadline = time.monotonic() + self._settings["transaction.timeout.ms"] / 1000
        failed: TransactionFailed | None = None
        try:
            reports = self._live.transact_batch(batch, deadline)
        except TransactionFailed as error:
            failed = error.with_traceback(None)
        if failed is not None:
            return self._after_failure(failed)
        self._unknown, self._failures, self._client_unused = [], 0, False
        self._raise_floors_to(batch, reports)
        if reports.rejected:
            return self._outcomes_of(batch, reports)
        return AcknowledgedBatch(batch, reports.partitions, reports.offsets)  # type: ignore[arg-type]  # none is None

    def _raise_floors_to(self, batch: RecordBatch, reports: BatchReports) -> None:
        """Raise the floors to the last offset written to each partition."""
        if len(batch.topics) == 1:
            topics: Iterable[str] = repeat(*batch.topics)
        else:
            topics = batch.table["topic"].to_pylist()
        last: dict[PartitionId, int] = {}
        for topic, partition, offset in zip(topics, reports.partitions, reports.offsets, strict=False):
            if offset is not None and offset > last.get((topic, partition), -1):
                last[topic, partition] = offset
        for (topic, partition), offset in last.items():
            floors = self._floors.setdefault(topic, {})
            floors[partition] = max(floors.get(partition, -1), offset)

    def _outcomes_of(self, batch: RecordBatch, reports: BatchReports) -> list[RecordOutcome]:
        """Return the outcomes of a committed batch, of which the client refused some records."""
        now = self._clock()
        return [
            self._failed(record, error, now, "not_sent", _REFUSED_BY_CLIENT)
            if (error := reports.rejected.get(row))
            else RecordOutcome(record.message_id, "acknowledged", None, partition, offset)
            for row, (record, partition, offset) in enumerate(
                zip(batch, reports.partitions, reports.offsets, strict=True)
            )
        ]

    def _transact(self, batch: list[ReplayRecord]) -> list[RecordOutcome]:
        self._unknown = batch
        deliveries = list(map(delivery_of, batch))
        deadline = time.monotonic() + self._settings["transaction.timeout.ms"] / 1000
        failed: TransactionFailed | None = None
        try:
            reports, refused = self._live.transact(deliveries, deadline)
        except TransactionFailed as error:
            failed = error.with_traceback(None)
        if failed is not None:
            return self._after_failure(failed)
        self._unknown, self._failures, self._client_unused = [], 0, False
        self._limit = min(self._most, self._limit * 2)
        dead_letters = {
            delivery.id: dead_letter for delivery, dead_letter in zip(deliveries, batch, strict=True)
        }
        return [self._acknowledged(report, dead_letters) for report in reports] + self._refused_by_client(
            refused, dead_letters
        )

    def _after_failure(self, failed: TransactionFailed) -> list[RecordOutcome]:
        logger.info(**with_fields("replay transaction failed", error=str(failed)))
        client_unused, self._client_unused = self._client_unused, False
        if self._yields and failed.error.name() in FENCING and not client_unused:
            raise ClientStopped
        refused = {
            id_text(one.id): error
            for one, error, _ in failed.reports
            if error and is_permanent_rejection(error)
        }
        if not refused:
            self._rest(f"A transaction failed and is being retried: {failed}")
        return self._recover(refused, may_have_committed=failed.may_have_committed)

    def _refused_by_client(
        self, refused: Sequence[Report], dead_letters: _RecordsById
    ) -> list[RecordOutcome]:
        """Return the failures of records that the client refused; the rest of the transaction committed."""
        now = self._clock()
        return [
            self._failed(dead_letters[one.id], error, now, "not_sent", _REFUSED_BY_CLIENT)
            for one, error, _ in refused
            if error
        ]

    def _acknowledged(self, report: Report, dead_letters: _RecordsById) -> RecordOutcome:
        delivery, _, message = report
        partition, offset = message.partition(), message.offset()
        floors = self._floors.setdefault(delivery.topic, {})
        floors[partition] = max(floors.get(partition, -1), offset)
        return RecordOutcome(dead_letters[delivery.id].message_id, "acknowledged", None, partition, offset)

    def _recover(self, refused: Mapping[str, KafkaError], *, may_have_committed: bool) -> list[RecordOutcome]:
        """Fence the client, settle the records that did commit, fail the rejected ones, and queue the rest again."""
        self._fence()
        self._queue_batches()
        everything = [*self._unknown, *(self._queue if self._yields else ())]
        probe = self._search(everything)
        outcomes = [
            RecordOutcome(dead_letter.message_id, "acknowledged", None, *probe.found[dead_letter.message_id])
            for dead_letter in everything
            if dead_letter.message_id in probe.found
        ]
        self._queue = deque(
            dead_letter for dead_letter in self._queue if dead_letter.message_id not in probe.found
        )
        left = [dead_letter for dead_letter in self._unknown if dead_letter.message_id not in probe.found]
        if may_have_committed:
            outcomes += [
                inconclusive(dead_letter, probe) for dead_letter in left if probe.may_be_gone(dead_letter)
            ]
            left = [dead_letter for dead_letter in left if not probe.may_be_gone(dead_letter)]
        if self._yields:  # a concurrent attempt may have sent the queued records
            outcomes += [inconclusive(one, probe) for one in self._queue if one.message_id in probe.newer]
            self._queue = deque(one for one in self._queue if one.message_id not in probe.newer)
        # The search ran after the fence, so none of these is in flight. With an inherited client it is the first search.
        outcomes += self._skip_deleted_topics([*left, *self._queue])
        left = [dead_letter for dead_letter in left if dead_letter.topic not in self._gone]
        self._queue = deque(dead_letter for dead_letter in self._queue if dead_letter.topic not in self._gone)
        rejected = self._rejected_ids(left, refused)
        now = self._clock()
        outcomes += [
            self._failed(dead_letter, refused[dead_letter.message_id], now, "rejected", _REFUSED)
            for dead_letter in left
            if dead_letter.message_id in rejected
        ]
        if refused and not rejected:
            self._limit = max(1, min(len(left) - 1, len(refused) // 2))
        self._queue.extendleft(
            dead_letter for dead_letter in reversed(left) if dead_letter.message_id not in rejected
        )
        self._unknown = []
        return outcomes

    def _is_gone(self, topic: str) -> bool:
        began = time.monotonic()
        while not self._numbers(topic):
            if time.monotonic() - began > _DELETED_AFTER:
                return True
            self._say(f"Waiting for the topic {topic}, which the brokers do not know.")
            self._wait(0.5)
        return False

    def _rejected_ids(self, batch: Sequence[ReplayRecord], refused: Mapping[str, KafkaError]) -> set[str]:
        """Return the ids of records that can never be written.

        Brokers reject whole batches. With several records of a topic in the batch the next transactions are smaller,
        until the bad record is alone.
        """
        many = Counter(dead_letter.topic for dead_letter in batch)
        return {
            dead_letter.message_id
            for dead_letter in batch
            if (error := refused.get(dead_letter.message_id))
            and (rejects_whole_topic(error) or many[dead_letter.topic] == 1)
        }

    def _failed(
        self, dead_letter: ReplayRecord, error: KafkaError, now: float, verdict: Verdict, reason: str
    ) -> RecordOutcome:
        death = died_again(dead_letter, error, now, verdict, reason)
        return RecordOutcome(dead_letter.message_id, "failed", death.error_text, death=death)

    # wait and close

    @property
    def _live(self) -> TransactionalClient:
        if self._client is None:
            raise AssertionError("the client is not created yet")
        return self._client

    def _rest(self, text: str) -> None:
        self._say(text)
        bound = time.monotonic() + _REST * 2 ** min(self._failures, 4)
        self._failures += 1
        while (left := bound - time.monotonic()) > 0:
            self._wait(min(0.2, left))

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._pause.wait(seconds)
        if self._interrupt():
            raise ClientStopped
        if self._client is not None and self._client.alive:
            self._client.serve()

    def _connection_error(self, error: KafkaError) -> None:
        logger.debug(**with_fields("replay connection error", error=error.str()))

    def _destroy(self) -> None:
        if self._client is not None:
            self._client.destroy()
            self._client = None

    def hand_on(self) -> TransactionalClient | None:
        """Return the client for the next strategy of this id; None while a record has no outcome."""
        if self.in_flight:
            return None
        client, self._client = self._client, None
        return client

    def close(self) -> None:
        self._destroy()


def _none(_: bytes) -> bool:
    return False

"""Exactly-once replay: the operation's transactional id lets a new owner fence the previous one.

The store records each transaction (claimed records, offsets before it) before it begins and settles it after the
commit. If the outcome of a commit is unknown, the strategy destroys the client, fences it with a new one, and reads the
topics from the recorded offsets: records found there are settled, the others are sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.dead_letter import ReplayRecord, delivery_of
from producer_core.delivery.delivery import Report
from producer_core.delivery.exactly_once.batch_reports import BatchReports
from producer_core.delivery.exactly_once.transaction_errors import FENCING, is_permanent_rejection
from producer_core.delivery.exactly_once.transactional_client import (
    ClientStopped,
    TransactionalClient,
    TransactionFailed,
)
from producer_core.delivery.record_batch import RecordBatch
from producer_core.messages import id_text
from producer_core.replay.claims import Floors
from producer_core.replay.fenced_client import FencedClient
from producer_core.replay.outcome import AcknowledgedBatch, OrphanedRecord, RecordOutcome
from producer_core.replay.phrases import NO_TOPIC
from producer_core.replay.probe_outcome import inconclusive, outcome_after_search
from producer_core.replay.rejections import refused_by_client, rejected_by_broker, rejected_ids
from producer_core.replay.send_queue import SendQueue
from producer_core.replay.strategy import Guarantee, Interrupted
from producer_core.replay.supervisor import Supervisor
from producer_core.replay.topic_search import TopicSearch

logger = queued_logger(__name__)

_RecordsById = Mapping[bytes, ReplayRecord]
"""Records by the 24 bytes of their ids."""


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
        self._client = FencedClient(settings, operation_id, supervisor, client)
        self._topics = TopicSearch(
            settings, floors, newer=newer, say=supervisor.say, wait=self._client.wait,
            connection_error=self._client.connection_error,
        )  # fmt: skip
        self._most = self._limit = most
        self._clock = supervisor.clock
        self._yields = yields
        self.by_wave = not yields
        self._queue = SendQueue()
        self._unknown: Sequence[ReplayRecord] = []  # records of a transaction whose outcome is not known yet
        self._begun = False

    @property
    def in_flight(self) -> int:
        return len(self._queue) + len(self._unknown)

    @property
    def bytes(self) -> int:
        return self._queue.bytes + sum(dead_letter.size for dead_letter in self._unknown)

    @property
    def floors(self) -> Floors:
        return self._topics.floors

    # start and restart

    def begin(self, topics: Sequence[str]) -> None:
        """Fence the previous owner once, then use the end offsets of new topics as their floors."""
        try:
            if not self._begun:
                self._client.fence()
            self._begun = True
            self._topics.begin(topics)
        except ClientStopped:
            raise Interrupted from None

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        try:
            probe = self._topics.search([orphan.dead_letter for orphan in orphans])
        except ClientStopped:
            raise Interrupted from None
        return [outcome_after_search(orphan.dead_letter, probe) for orphan in orphans]

    # sending

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        if isinstance(dead_letters, RecordBatch) and not self._yields and not self._topics.gone:
            self._queue.add_batch(dead_letters)
            return []
        self._queue.add(list(filter(self._has_topic, dead_letters)))
        return self._skip_deleted_topics(dead_letters)

    def _has_topic(self, dead_letter: ReplayRecord) -> bool:
        return dead_letter.topic not in self._topics.gone

    def _skip_deleted_topics(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        """Skip the records of deleted topics; they are not failures, so the guard does not count them."""
        return [
            RecordOutcome(dead_letter.message_id, "skipped", NO_TOPIC)
            for dead_letter in dead_letters
            if not self._has_topic(dead_letter)
        ]

    def give_back(self) -> list[RecordOutcome]:
        return [RecordOutcome(dead_letter.message_id, "pending") for dead_letter in self._queue.take_all()]

    def gather(self, seconds: float) -> list[RecordOutcome] | AcknowledgedBatch:
        """Send one transaction of queued records and recover if it fails."""
        try:
            if self._unknown:  # an earlier recovery was interrupted
                return self._recover({}, may_have_committed=True)
            if self._limit < self._most:
                self._queue.to_rows()
            if not self._queue:
                self._client.wait(seconds)
                return []
            try:
                return self._transact_next()
            except TransactionFailed as error:
                failed = error.with_traceback(None)
            return self._after_failure(failed)
        except ClientStopped:
            raise Interrupted from None

    def _transact_next(self) -> list[RecordOutcome] | AcknowledgedBatch:
        if self._queue.has_only_columns:
            return self._transact_batch(self._queue.next_columns(self._limit))
        return self._transact(self._queue.next_rows(self._limit))

    def _transact_batch(self, batch: RecordBatch) -> list[RecordOutcome] | AcknowledgedBatch:
        """Send one transaction of columns. After a failure, its records are handled one by one."""
        self._unknown = batch
        reports = self._client.live.transact_batch(batch, self._client.deadline())
        self._unknown = []
        self._client.committed()
        self._topics.raise_to_reports(batch, reports)
        if reports.rejected:
            return self._outcomes_of(batch, reports)
        return AcknowledgedBatch(batch, reports.partitions, reports.offsets)  # type: ignore[arg-type]  # none is None

    def _outcomes_of(self, batch: RecordBatch, reports: BatchReports) -> list[RecordOutcome]:
        """Return the outcomes of a committed batch, of which the client refused some records."""
        now = self._clock()
        return [
            refused_by_client(record, error, now)
            if (error := reports.rejected.get(row))
            else RecordOutcome(record.message_id, "acknowledged", None, partition, offset)
            for row, (record, partition, offset) in enumerate(
                zip(batch, reports.partitions, reports.offsets, strict=True)
            )
        ]

    def _transact(self, batch: list[ReplayRecord]) -> list[RecordOutcome]:
        self._unknown = batch
        deliveries = list(map(delivery_of, batch))
        reports, refused = self._client.live.transact(deliveries, self._client.deadline())
        self._unknown = []
        self._client.committed()
        self._limit = min(self._most, self._limit * 2)
        dead_letters = {
            delivery.id: dead_letter for delivery, dead_letter in zip(deliveries, batch, strict=True)
        }
        now = self._clock()
        return [
            *(self._acknowledged(report, dead_letters) for report in reports),
            *(refused_by_client(dead_letters[one.id], error, now) for one, error, _ in refused if error),
        ]

    def _acknowledged(self, report: Report, dead_letters: _RecordsById) -> RecordOutcome:
        delivery, _, message = report
        partition, offset = message.partition(), message.offset()
        self._topics.raise_to(delivery.topic, partition, offset)
        return RecordOutcome(dead_letters[delivery.id].message_id, "acknowledged", None, partition, offset)

    # recovery

    def _after_failure(self, failed: TransactionFailed) -> list[RecordOutcome]:
        logger.info(**with_fields("replay transaction failed", error=str(failed)))
        client_unused, self._client.unused = self._client.unused, False
        if self._yields and failed.error.name() in FENCING and not client_unused:
            raise ClientStopped
        refused = {
            id_text(one.id): error
            for one, error, _ in failed.reports
            if error and is_permanent_rejection(error)
        }
        if not refused:
            self._client.rest(f"A transaction failed and is being retried: {failed}")
        return self._recover(refused, may_have_committed=failed.may_have_committed)

    def _recover(self, refused: Mapping[str, KafkaError], *, may_have_committed: bool) -> list[RecordOutcome]:
        """Fence the client, settle the records that did commit, fail the rejected ones, and queue the rest again."""
        self._client.fence()
        self._queue.to_rows()
        everything = [*self._unknown, *(self._queue if self._yields else ())]
        probe = self._topics.search(everything)
        outcomes = [
            RecordOutcome(dead_letter.message_id, "acknowledged", None, *probe.found[dead_letter.message_id])
            for dead_letter in everything
            if dead_letter.message_id in probe.found
        ]
        self._queue.keep(lambda one: one.message_id not in probe.found)
        left = [dead_letter for dead_letter in self._unknown if dead_letter.message_id not in probe.found]
        if may_have_committed:
            outcomes += [
                inconclusive(dead_letter, probe) for dead_letter in left if probe.may_be_gone(dead_letter)
            ]
            left = [dead_letter for dead_letter in left if not probe.may_be_gone(dead_letter)]
        if self._yields:  # a concurrent attempt may have sent the queued records
            outcomes += [inconclusive(one, probe) for one in self._queue if one.message_id in probe.newer]
            self._queue.keep(lambda one: one.message_id not in probe.newer)
        # The search ran after the fence, so none of these is in flight. With an inherited client it is the first search.
        outcomes += self._skip_deleted_topics([*left, *self._queue])
        self._queue.keep(self._has_topic)
        outcomes += self._queue_again(list(filter(self._has_topic, left)), refused)
        self._unknown = []
        return outcomes

    def _queue_again(
        self, left: Sequence[ReplayRecord], refused: Mapping[str, KafkaError]
    ) -> list[RecordOutcome]:
        """Fail the records that can never be written and return their outcomes; send the others again."""
        rejected, now = rejected_ids(left, refused), self._clock()
        if refused and not rejected:
            self._limit = max(1, min(len(left) - 1, len(refused) // 2))
        self._queue.put_back([one for one in left if one.message_id not in rejected])
        return [
            rejected_by_broker(one, refused[one.message_id], now)
            for one in left
            if one.message_id in rejected
        ]

    # the end

    def hand_on(self) -> TransactionalClient | None:
        """Return the client for the next strategy of this id; None while a record has no outcome."""
        return None if self.in_flight else self._client.hand_on()

    def close(self) -> None:
        self._client.close()

"""Settle messages: remove them from `pending` and report the outcome.

Removing a message from `pending` is one atomic step. Each message is therefore settled once, even if two outcomes arrive: a
delivery report, the result of a probe, or a close.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.dead_letter import ProducerInfo, make_dead_letter
from producer_core.delivery.delivery import QUEUED, Delivery, Report
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.prober import AckCheckpoints, FoundReport
from producer_core.delivery.report_batch import ReportBatch
from producer_core.delivery.reports import ReplayResult
from producer_core.events import Acknowledged, Attempt, Verdict
from producer_core.kafka.classify import Failure, failure_of
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_text
from producer_core.metrics.ack_batch import Acknowledgements

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import PendingLog

_MAX_DUPLICATES = 10_000
"""Ids of duplicates kept for `get_message_status`; the oldest is dropped first."""

_NESTED: AbstractContextManager[None] = contextlib.nullcontext()
_new_tuple = tuple.__new__
_topic_of, _seq_of, _id_of, _callbacks_of = map(attrgetter, ("topic", "seq", "id", "callbacks"))


class Settlement:
    """Settles messages: delivery reports on the poll thread, probe results on the prober's, dead letters on any.

    `failed` handles a report with an error.
    """

    def __init__(
        self,
        context: DeliveryContext,
        pending_log: PendingLog | None,
        *,
        dispatcher: LaneDispatcher,
        checkpoints: AckCheckpoints,
        producer: ProducerInfo,
        failed: Callable[[Delivery, KafkaError, Any], None],
    ) -> None:
        self._pending = context.pending
        self._pending_log = pending_log
        self._lanes = context.lanes
        self._dispatcher = dispatcher
        self._duplicates = context.duplicates
        self._retries = context.retries
        self._hooks = context.hooks
        self._connection = context.connection
        self._checkpoints = checkpoints
        self._producer = producer
        self._failed = failed
        self._settled = context.settled
        self.highest = -1  # the highest acknowledged sequence; written on the poll thread
        # The latest ids of held messages that turned out to be duplicates.
        self.duplicates: dict[bytes, None] = {}
        # The ids of threads that have settled a message and have not called all hooks yet.
        self.reporting: set[int] = set()

    # reports

    def reports(self, batch: Sequence[Report]) -> None:
        """Settle reported messages. Called on the poll thread."""
        reports = ReportBatch.of(batch)
        with self.until_reported(), self._hooks.callbacks_last():
            acknowledged = (
                self._all_acked(reports) if reports.plain else Acknowledgements.of(self._each(reports))
            )
            if acknowledged:
                self._connection.acknowledged()
                self._checkpoints.note(acknowledged)
                self._hooks.acknowledged(acknowledged)
            if self._pending_log is not None:
                self._pending_log.flush()

    def _each(self, reports: ReportBatch) -> list[Acknowledged]:
        acknowledged: list[Acknowledged] = []
        for delivery, error, message in reports:
            if error is not None:
                delivery.state = QUEUED
                if delivery.id in self._pending:  # else an interrupt removed it
                    self._failed(delivery, error, message)
            elif item := self._acked(delivery, message):
                acknowledged.append(item)
        return acknowledged

    # The next two methods are long for speed: every acknowledged message passes through one of them.

    def _all_acked(self, reports: ReportBatch) -> Acknowledgements:
        """Settle acknowledged messages without callbacks or earlier failures, column by column. This is the usual case."""
        deliveries = reports.deliveries()
        self._duplicates.confirm(deliveries)  # first, because the claim of a settled message can expire
        if self._pending_log is None:
            pop = self._pending.pop
            removed = [pop(delivery.id, None) is not None for delivery in deliveries]
        else:
            removed = self._pending_log.remove_many(deliveries)
        if not all(removed):  # a probe or close() settled one of them
            reports = reports.only(removed)
            deliveries = reports.deliveries()
        partitions, offsets, latencies = reports.places()
        if self._pending_log is not None:
            self._pending_log.acknowledged(deliveries)
        seqs = list(map(_seq_of, deliveries))
        self.highest = max(self.highest, max(seqs, default=-1))
        for callbacks in filter(None, map(_callbacks_of, deliveries)):
            callbacks.on_settled("sent")
        if self._lanes.queues:
            for delivery in deliveries:
                self._dispatcher.settled(delivery, acknowledged=True)
        return Acknowledgements(
            list(map(_topic_of, deliveries)),
            partitions,
            offsets,
            latencies,
            [0 if (value := delivery.value) is None else len(value) for delivery in deliveries],
            [1] * len(deliveries),
            seqs,
            list(map(_id_of, deliveries)),
        )

    def _acked(self, delivery: Delivery, message: Any) -> Acknowledged | None:
        if delivery.checksum is not None:
            self._duplicates.confirm((delivery,))
        if self._pending_log is None:  # _remove, inlined for speed
            if self._pending.pop(delivery.id, None) is None:
                return None
        elif not self._pending_log.remove(delivery):
            return None
        if delivery.seq > self.highest:
            self.highest = delivery.seq
        tries = 1
        if delivery.attempts:
            tries += len(delivery.attempts)
            self._retries.settled(delivery, True)
        partition, offset, latency = message.partition(), message.offset(), message.latency()
        if delivery.on_replayed is not None:
            delivery.on_replayed(ReplayResult(id_text(delivery.id), "acknowledged", partition, offset))
        if self._pending_log is not None:
            self._pending_log.acknowledged((delivery,))
        if delivery.callbacks is not None:
            self._hooks.call_back(delivery, message, None)
        if self._lanes.queues:
            self._dispatcher.settled(delivery, acknowledged=True)
        value = delivery.value
        size = 0 if value is None else len(value)
        row = (delivery.topic, partition, offset, latency or 0.0, size, tries, delivery.seq, delivery.id)
        return _new_tuple(Acknowledged, row)  # for speed: Acknowledged(…) without a Python call

    # other outcomes

    def found(self, delivery: Delivery, result: ProbeResult) -> None:
        """Acknowledge a message that a probe found on its topic."""
        with self.until_reported():
            item = self._acked(delivery, FoundReport(result))
            if item is not None:
                self._hooks.acknowledged([item])
                self._hooks.counted(delivery.topic, "landed")
            if self._pending_log is not None:
                self._pending_log.flush()

    def give_up(
        self, delivery: Delivery, failure: Failure, *, proof: tuple[Verdict, str] | None = None
    ) -> None:
        """Turn the message into a dead letter. `proof` as in `make_dead_letter`."""
        with self.until_reported():
            self._duplicates.prolong(delivery)
            if self._remove(delivery):
                self._give_up(delivery, failure, proof)

    def hold_back(self, delivery: Delivery, reason: str, now: float) -> None:
        """Turn the message into a dead letter that only an operator replays: the topic may have it and a newer record."""
        failure = failure_of("newer_record")
        delivery.attempts = (*delivery.attempts, (Attempt(now, failure.code, reason), "inconclusive"))
        self.give_up(delivery, failure, proof=("inconclusive", reason))

    def _give_up(self, delivery: Delivery, failure: Failure, proof: tuple[Verdict, str] | None) -> None:
        if len(delivery.attempts) > 1:
            self._retries.settled(delivery, False)
        dead_letter = make_dead_letter(delivery, failure, producer=self._producer, proof=proof)
        if dead_letter.verdict in ("not_sent", "rejected", "absent"):
            self._duplicates.release(delivery)
        if delivery.on_replayed is None:
            self._hooks.dead_letter(dead_letter)
        else:
            text = dead_letter.error_text
            delivery.on_replayed(
                ReplayResult(dead_letter.message_id, "failed", dead_letter=dead_letter, text=text)
            )
        self._hooks.call_back(delivery, None, dead_letter)
        self._dispatcher.settled(delivery, acknowledged=False)

    def leave_to_journal(self, delivery: Delivery, failure: Failure) -> None:
        """Leave a message that fails during close in the journal; without a journal it becomes a dead letter."""
        if self._pending_log is not None and delivery.on_replayed is None:
            self._pending.pop(delivery.id, None)
        else:
            self.give_up(delivery, failure)

    def duplicate(self, delivery: Delivery) -> None:
        """Settle a held message whose original was acknowledged."""
        with self.until_reported():
            if self._remove(delivery):
                if self._pending_log is not None:
                    self._pending_log.mark_redundant(delivery)
                    self._pending_log.flush()
                self._duplicates.duplicate(delivery)
                self._remember_duplicate(delivery.id)
                self._hooks.call_back(delivery, None, None)
                self._dispatcher.settled(delivery, acknowledged=False)

    def _remember_duplicate(self, message_id: bytes) -> None:
        self.duplicates[message_id] = None
        if len(self.duplicates) > _MAX_DUPLICATES:
            self.duplicates.pop(next(iter(self.duplicates)), None)

    def until_reported(self) -> AbstractContextManager[None]:
        """Mark this thread as reporting: a flush also waits for the hooks, which run after the removal from `pending`.

        In a nested use, the outer one ends the report.
        """
        return _NESTED if threading.get_ident() in self.reporting else self._report()

    @contextlib.contextmanager
    def _report(self) -> Iterator[None]:
        thread = threading.get_ident()
        self.reporting.add(thread)
        try:
            yield
        finally:
            self.reporting.discard(thread)
            self._settled.notify_all()

    def _remove(self, delivery: Delivery) -> bool:
        """Remove a message from `pending`; return False when another thread settled it first."""
        if self._pending_log is not None:
            return self._pending_log.remove(delivery)
        return self._pending.pop(delivery.id, None) is not None

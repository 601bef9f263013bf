"""The settlement: what takes a message out of `pending`, and everybody who then hears of it.

Taking it out of that table is the one atomic step that settles it, so whatever arrives twice (a late report, a look
that found it, a close) settles it once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from producer_core._internal.wakeup import Wakeup
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dead_letter import ProducerInfo, dead_letter
from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import QUEUED, Delivery, Report
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.ordering import Lanes
from producer_core.delivery.prober import AckCheckpoints, FoundReport
from producer_core.delivery.report_batch import ReportBatch
from producer_core.delivery.reports import ReplayResult
from producer_core.delivery.retry import RetryManager
from producer_core.events import Acknowledged, Attempt, Verdict
from producer_core.kafka.classify import Failure, failure_of
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_text
from producer_core.metrics.ack_batch import Acknowledgements

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import PendingLog

_REMEMBERED = 10_000
"""Duplicates whose ids are known to `get_message_status`; the oldest is forgotten first."""

_new = tuple.__new__
_topic_of, _seq_of, _id_of, _owner_of = map(attrgetter, ("topic", "seq", "id", "owner"))


class Settlement:
    """Reports come on the poll thread, what a look found on the look's, burials on any. `failed` hears of errors."""

    def __init__(
        self,
        pending: dict[bytes, Delivery],
        backlog: PendingLog | None,
        *,
        lanes: Lanes,
        turns: LaneDispatcher,
        copies: DuplicateGuard,
        retries: RetryManager,
        audience: HookDispatcher,
        connection: ConnectionState,
        marks: AckCheckpoints,
        origin: ProducerInfo,
        failed: Callable[[Delivery, KafkaError, Any], None],
        settled: Wakeup,
    ) -> None:
        self._pending = pending
        self._backlog = backlog
        self._lanes = lanes
        self._turns = turns
        self._copies = copies
        self._retries = retries
        self._audience = audience
        self._connection = connection
        self._marks = marks
        self._origin = origin
        self._failed = failed
        self._settled = settled
        self.highest = -1  # the highest sequence that was acknowledged; written on the poll thread
        self.duplicates: dict[
            bytes, None
        ] = {}  # ids of held copies that proved to be duplicates, the latest ones
        self.telling: set[int] = set()  # the threads that settle something and have not told everybody yet

    # reports

    def reports(self, batch: Sequence[Report]) -> None:
        """Delivery reports, on the poll thread."""
        reports = ReportBatch.of(batch)
        with self._until_told():
            acknowledged = (
                self._all_acked(reports) if reports.plain else Acknowledgements.of(self._each(reports))
            )
            if acknowledged:
                self._connection.acknowledged()
                self._marks.note(acknowledged)
                self._audience.tell("acknowledged", acknowledged)
            if self._backlog is not None:
                self._backlog.flush()

    def _each(self, reports: ReportBatch) -> list[Acknowledged]:
        acknowledged: list[Acknowledged] = []
        for delivery, error, message in reports:
            if error is not None:
                delivery.place = QUEUED
                if delivery.id in self._pending:  # else an interrupt took it back
                    self._failed(delivery, error, message)
            elif item := self._acked(delivery, message):
                acknowledged.append(item)
        return acknowledged

    # The next two are in one piece for speed: every message that is acknowledged goes through one of them.

    def _all_acked(self, reports: ReportBatch) -> Acknowledgements:
        """As `_acked` for each of plain ones, one step for all at a time: what nearly every message costs."""
        deliveries = reports.deliveries()
        self._copies.confirm(deliveries)  # before they leave, for a claim may hold for no longer
        if self._backlog is None:
            settle = self._pending.pop
            left = [settle(delivery.id, None) is not None for delivery in deliveries]
        else:
            left = self._backlog.leave_many(deliveries)
        if not all(left):  # somebody else settled one: a look, or who closes
            reports = reports.only(left)
            deliveries = reports.deliveries()
        partitions, offsets, latencies = reports.places()
        if self._backlog is not None:
            self._backlog.acknowledged(deliveries)
        seqs = list(map(_seq_of, deliveries))
        self.highest = max(self.highest, max(seqs, default=-1))
        for owner in filter(None, map(_owner_of, deliveries)):
            owner.ended("sent")
        if self._lanes.queues:
            for delivery in deliveries:
                self._turns.settled(delivery, acknowledged=True)
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
            self._copies.confirm((delivery,))
        if self._backlog is None:  # as in _leave, without its call
            if self._pending.pop(delivery.id, None) is None:
                return None
        elif not self._backlog.leave(delivery):
            return None
        if delivery.seq > self.highest:
            self.highest = delivery.seq
        tries = 1
        if delivery.attempts:
            tries += len(delivery.attempts)
            self._retries.settled(delivery, True)
        partition, offset, latency = message.partition(), message.offset(), message.latency()
        if delivery.replay is not None:
            delivery.replay(ReplayResult(id_text(delivery.id), "acknowledged", partition, offset))
        if self._backlog is not None:
            self._backlog.acknowledged((delivery,))
        if delivery.owner is not None:
            self._audience.call_back(delivery, message, None)
        if self._lanes.queues:
            self._turns.settled(delivery, acknowledged=True)
        value = delivery.value
        size = 0 if value is None else len(value)
        row = (delivery.topic, partition, offset, latency or 0.0, size, tries, delivery.seq, delivery.id)
        return _new(Acknowledged, row)  # as Acknowledged(…) makes it, without a Python call for each message

    # other ends

    def found(self, delivery: Delivery, landing: ProbeResult) -> None:
        """A look found it on its topic: as acknowledged as by a report."""
        with self._until_told():
            item = self._acked(delivery, FoundReport(landing))
            if item is not None:
                self._audience.tell("acknowledged", [item])
                self._audience.tell("counted", delivery.topic, "landed")
            if self._backlog is not None:
                self._backlog.flush()

    def bury(self, delivery: Delivery, failure: Failure, *, proof: tuple[Verdict, str] | None = None) -> None:
        """It is given up, and becomes a dead letter. `proof` as in `burial.dead_letter`."""
        with self._until_told():
            self._copies.prolong(delivery)
            if self._leave(delivery):
                self._bury(delivery, failure, proof)

    def hold_back(self, delivery: Delivery, reason: str, now: float) -> None:
        """It may be on its topic and must not be sent again by itself: an operator decides about its dead letter."""
        failure = failure_of("newer_record")
        delivery.attempts = (*delivery.attempts, (Attempt(now, failure.code, reason), "inconclusive"))
        self.bury(delivery, failure, proof=("inconclusive", reason))

    def _bury(self, delivery: Delivery, failure: Failure, proof: tuple[Verdict, str] | None) -> None:
        if len(delivery.attempts) > 1:
            self._retries.settled(delivery, False)
        letter = dead_letter(delivery, failure, origin=self._origin, proof=proof)
        if letter.verdict in ("not_sent", "rejected", "absent"):
            self._copies.release(delivery)
        if delivery.replay is None:
            self._audience.tell("died", letter)
        else:
            delivery.replay(ReplayResult(letter.message_id, "failed", letter=letter, text=letter.error_text))
        self._audience.call_back(delivery, None, letter)
        self._turns.settled(delivery, acknowledged=False)

    def keep(self, delivery: Delivery, failure: Failure) -> None:
        """Failed while closing: it stays in the journal, or becomes a dead letter without one."""
        if self._backlog is not None and delivery.replay is None:
            self._pending.pop(delivery.id, None)
        else:
            self.bury(delivery, failure)

    def duplicate(self, delivery: Delivery) -> None:
        """A held copy whose twin was acknowledged: its owner is told so."""
        with self._until_told():
            if self._leave(delivery):
                if self._backlog is not None:
                    self._backlog.needless(delivery)
                    self._backlog.flush()
                self._copies.duplicate(delivery)
                self._remember_duplicate(delivery.id)
                self._audience.call_back(delivery, None, None)
                self._turns.settled(delivery, acknowledged=False)

    def _remember_duplicate(self, message_id: bytes) -> None:
        self.duplicates[message_id] = None
        if len(self.duplicates) > _REMEMBERED:
            self.duplicates.pop(next(iter(self.duplicates)), None)

    @contextlib.contextmanager
    def _until_told(self) -> Iterator[None]:
        """What is settled in here has left `pending` before everybody heard of it: who waits, waits for that too."""
        me = threading.get_ident()
        if me in self.telling:  # one settles another: the outer one is not done yet
            yield
            return
        self.telling.add(me)
        try:
            yield
        finally:
            self.telling.discard(me)
            self._settled.ring()

    def _leave(self, delivery: Delivery) -> bool:
        """The one step that settles a message; False when it was settled before."""
        if self._backlog is not None:
            return self._backlog.leave(delivery)
        return self._pending.pop(delivery.id, None) is not None

"""Track which offsets of a consumed topic are safe to commit after its messages were forwarded and settled.

offsets = UpstreamOffsets()
for message in consumer:
    record_id = offsets.accepted((message.topic(), message.partition()), message.offset())
    if producer.send_message("copy", message.value(), record_id=record_id, on_delivery=offsets.report) is None:
        offsets.settled(*record_id)  # a confirmed duplicate has no delivery report
    consumer.commit(offsets=offsets.topic_partitions())
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from confluent_kafka import TopicPartition

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.user_callbacks import is_containable
from producer_core.delivery.reports import DeliveryReport

logger = queued_logger(__name__)

OnDeadLetter = Literal["hold", "commit"]


class UpstreamRecord(NamedTuple):
    """The source of a forwarded message. Pass it as `record_id`."""

    source: Hashable
    offset: int


@dataclass(slots=True)
class _Source:
    """One source partition: open offsets in reading order, each with the offset accepted just before it."""

    open: OrderedDict[int, int | None] = field(default_factory=OrderedDict)
    last: int | None = None  # the highest offset accepted

    def position(self) -> int | None:
        """Return the offset to commit: one after the contiguous settled offsets; None before there is one."""
        settled = next(iter(self.open.values())) if self.open else self.last
        return None if settled is None else settled + 1


class UpstreamOffsets:
    """Computes, per source, the highest offset that is safe to commit: all messages before it are settled.

    Offsets may have gaps (compaction, transaction markers) and ascend within a source. Call `accepted` in reading order,
    and `forget` when a partition is revoked or the consumer seeks back. `report` and `settled` may be called in any
    order, from any thread. Each call is O(1), and memory is proportional to the open offsets.

    `dead` decides about dead letters. "hold" (default): the offset of a dead letter is not committed, and none after it,
    so a restart reads it again; call `settled` after you have handled it. "commit": the offset counts as settled. A dead
    letter is durable once it is on disk, which takes the store's recorder up to 0.1 s; pass
    `kept=lambda message_id: producer.dlq.get(message_id) is not None` to commit nothing before that. Without a store,
    dead letters are in memory, and "commit" loses them with the process.
    """

    def __init__(self, *, dead: OnDeadLetter = "hold", kept: Callable[[str], bool] | None = None) -> None:
        self._commit_dead = dead == "commit"
        self._kept = kept
        self._lock = threading.Lock()  # guards the two dicts
        self._sources: dict[Hashable, _Source] = {}
        self._dead: dict[UpstreamRecord, str] = {}  # message ids of dead letters that hold their offset

    def accepted(self, source: Hashable, offset: int) -> UpstreamRecord:
        """Record a consumed message that will be forwarded, and return its record id."""
        with self._lock:
            known = self._sources.setdefault(source, _Source())
            if known.last is not None and offset <= known.last:
                raise ValueError(
                    f"Offset {offset} of {source!r} came after {known.last}. Call accepted() in offset order, on one "
                    "thread per partition; call forget() first when a partition is reassigned or read again."
                )
            known.open[offset] = known.last
            known.last = offset
        return UpstreamRecord(source, offset)

    def settled(self, source: Hashable, offset: int) -> None:
        """Mark a message as settled. Has no effect on one that is settled already or forgotten."""
        with self._lock:
            self._settle(UpstreamRecord(source, offset))

    def report(self, report: DeliveryReport) -> None:
        """Record a delivery report. Pass this as `on_delivery=`, and the result of `accepted` as `record_id=`."""
        record = UpstreamRecord(*report.record_id)
        with self._lock:
            if report.error is None or (self._commit_dead and self._kept is None):
                self._settle(record)
            elif self._is_open(record):
                self._dead[record] = report.message_id

    def committable(self) -> dict[Any, int]:
        """Return the offset to commit per source: one after the last safe offset, as Kafka expects.

        Sources without a settled message are left out. Commit as often as you like: the offsets never decrease.
        """
        if self._commit_dead and self._kept is not None:
            self._settle_kept(self._kept)
        with self._lock:
            positions = {source: known.position() for source, known in self._sources.items()}
        return {source: position for source, position in positions.items() if position is not None}

    def topic_partitions(self) -> list[TopicPartition]:
        """Return `committable` for confluent_kafka's `commit(offsets=…)`; sources must be (topic, partition)."""
        return [TopicPartition(*source, offset) for source, offset in self.committable().items()]

    def forget(self, source: Hashable) -> None:
        """Drop the open offsets of a partition that was revoked or is read from another position."""
        with self._lock:
            self._sources.pop(source, None)
            for record in [one for one in self._dead if one.source == source]:
                del self._dead[record]

    @property
    def open(self) -> int:
        """The number of messages that are not settled, including dead letters that hold their offset."""
        with self._lock:
            return sum(len(known.open) for known in self._sources.values())

    @property
    def dead(self) -> dict[UpstreamRecord, str]:
        """Dead letters that hold their offset: their records and message ids."""
        with self._lock:
            return dict(self._dead)

    def _settle(self, record: UpstreamRecord) -> None:
        self._dead.pop(record, None)
        if self._is_open(record):
            del self._sources[record.source].open[record.offset]

    def _is_open(self, record: UpstreamRecord) -> bool:
        known = self._sources.get(record.source)
        return known is not None and record.offset in known.open

    def _settle_kept(self, kept: Callable[[str], bool]) -> None:
        """Settle the dead letters that are durable. Runs `kept` outside the lock, because it may read from disk."""
        found = [record for record, message_id in self.dead.items() if kept(message_id)]
        with self._lock:
            for record in found:
                self._settle(record)


def in_order(
    send: Callable[..., str | None], callback: Callable[[DeliveryReport], None]
) -> Callable[..., str | None]:
    """Wrap `send_message` so that reports reach `callback` in sending order within each topic and partition.

        send = in_order(producer.send_message, callback)
        send("orders", value, key="alice", record_id=17)

    A message that is sent again is acknowledged after later ones; their reports wait for its report. With `partition=`
    they wait within that partition, without it within the topic, because the partition is then unknown until the
    report. Each of these delivers one report at a time. An exception in the callback is logged and does not stop later reports.
    """
    return _InOrder(send, callback)


@dataclass(slots=True, eq=False)
class _Entry:
    """The position of one message in its queue."""

    on_end: Callable[[_Entry, DeliveryReport | None], None]
    lane: tuple[str, int | None]
    finished: bool = False
    report: DeliveryReport | None = None

    def __call__(self, report: DeliveryReport) -> None:
        self.on_end(self, report)


class _InOrder:
    """Holds the queues of `in_order`, one per lane. One thread at a time empties a lane."""

    def __init__(self, send: Callable[..., str | None], callback: Callable[[DeliveryReport], None]) -> None:
        self._send = send
        self._callback = callback
        self._lock = threading.Lock()  # guards the entries and the two fields below
        self._lanes: dict[tuple[str, int | None], deque[_Entry]] = {}
        self._busy: set[tuple[str, int | None]] = set()

    def __call__(self, topic: str, value: Any, key: Any = None, **options: Any) -> str | None:
        entry = _Entry(self._finish, (topic, options.get("partition")))
        with self._lock:
            self._lanes.setdefault(entry.lane, deque()).append(entry)
        message_id = None
        try:
            message_id = self._send(topic, value, key, on_delivery=entry, **options)
        finally:
            if message_id is None:  # rejected, or a confirmed duplicate: there will be no report
                self._finish(entry, None)
        return message_id

    def _finish(self, entry: _Entry, report: DeliveryReport | None) -> None:
        with self._lock:
            entry.finished, entry.report = True, report
            if entry.lane in self._busy:  # the thread that empties the lane delivers this report too
                return
            self._busy.add(entry.lane)
        while (ready := self._next(entry.lane)) is not None:
            self._deliver(ready)

    def _next(self, lane: tuple[str, int | None]) -> _Entry | None:
        with self._lock:
            queue = self._lanes.get(lane)
            if queue and queue[0].finished:
                return queue.popleft()
            self._busy.discard(lane)
            if not queue:
                self._lanes.pop(lane, None)
            return None

    def _deliver(self, entry: _Entry) -> None:
        if entry.report is None:
            return
        try:
            self._callback(entry.report)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception(**with_fields("delivery callback failed", topic=entry.lane[0]))

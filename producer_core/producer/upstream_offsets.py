"""Upstream offsets: how far a consumed topic may be committed, now that its messages were sent on and settled.

offsets = UpstreamOffsets()
for message in consumer:
    record_id = offsets.accepted((message.topic(), message.partition()), message.offset())
    if producer.send_message("copy", message.value(), record_id=record_id, on_delivery=offsets.report) is None:
        offsets.settled(*record_id)  # a confirmed duplicate: nobody will report it
    consumer.commit(offsets=offsets.topic_partitions())
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from confluent_kafka import TopicPartition

from producer_core._internal.user_callbacks import is_containable
from producer_core.delivery.reports import DeliveryReport

logger = logging.getLogger(__name__)

Dead = Literal["hold", "commit"]


class UpstreamRecord(NamedTuple):
    """Where a message came from: a record id to send it with."""

    source: Hashable
    offset: int


@dataclass(slots=True)
class _Source:
    """One partition upstream: what is open, each with the offset accepted just before it, in reading order."""

    open: OrderedDict[int, int | None] = field(default_factory=OrderedDict)
    last: int | None = None  # the last offset accepted

    def position(self) -> int | None:
        """The offset to commit, one after the last of an unbroken row of settled ones; None before there is one."""
        settled = next(iter(self.open.values())) if self.open else self.last
        return None if settled is None else settled + 1


class UpstreamOffsets:
    """Tells the highest offset of each source that is safe to commit: everything accepted before it is settled.

    Offsets may have gaps (compaction, transaction markers); they rise within a source, so call `accepted` in
    the order of reading and `forget` when a partition is revoked or the consumer seeks back. `report` and
    `settled` may come in any order, from any thread. Each call is O(1); memory is what is open and no more.

    `dead` says what a dead letter means to its source. "hold" (default): its offset is not committed, and so none
    after it; after a restart it is read again. Call `settled` when you have dealt with it. "commit": the dead letter
    is enough, go on. It is enough once it is on disk, which takes the store's recorder up to 0.1 s; give
    `kept=lambda message_id: producer.dlq.get(message_id) is not None` to commit nothing before. Without a store
    dead letters live in memory, and "commit" loses them with the process.
    """

    def __init__(self, *, dead: Dead = "hold", kept: Callable[[str], bool] | None = None) -> None:
        self._commit_dead = dead == "commit"
        self._kept = kept
        self._lock = threading.Lock()  # guards the two tables
        self._sources: dict[Hashable, _Source] = {}
        self._dead: dict[UpstreamRecord, str] = {}  # message ids of dead letters that hold their offset

    def accepted(self, source: Hashable, offset: int) -> UpstreamRecord:
        """A message was read here and will be sent on; what is returned is its record id."""
        with self._lock:
            known = self._sources.setdefault(source, _Source())
            if known.last is not None and offset <= known.last:
                raise ValueError(
                    f"Offset {offset} of {source!r} came after {known.last}. Accept in the order of reading, on one "
                    "thread a partition; call forget() first when a partition is assigned anew or read again."
                )
            known.open[offset] = known.last
            known.last = offset
        return UpstreamRecord(source, offset)

    def settled(self, source: Hashable, offset: int) -> None:
        """This message is where it should be. What is settled already, or forgotten, is left alone."""
        with self._lock:
            self._settle(UpstreamRecord(source, offset))

    def report(self, report: DeliveryReport) -> None:
        """For `on_delivery=`, with what `accepted` returned as the `record_id`."""
        came_from = UpstreamRecord(*report.record_id)
        with self._lock:
            if report.error is None or (self._commit_dead and self._kept is None):
                self._settle(came_from)
            elif self._is_open(came_from):
                self._dead[came_from] = report.message_id

    def committable(self) -> dict[Any, int]:
        """By source, the offset to commit: one after the last that is safe, as Kafka wants it.

        A source of which nothing is settled yet is not among them. Commit again and again as you like: the
        offsets never fall.
        """
        if self._commit_dead and self._kept is not None:
            self._take_kept(self._kept)
        with self._lock:
            positions = {source: known.position() for source, known in self._sources.items()}
        return {source: position for source, position in positions.items() if position is not None}

    def topic_partitions(self) -> list[TopicPartition]:
        """`committable` as confluent_kafka's `commit(offsets=…)` takes it; sources are (topic, partition)."""
        return [TopicPartition(*source, offset) for source, offset in self.committable().items()]

    def forget(self, source: Hashable) -> None:
        """The partition was revoked, or is read from another place: what it had open no longer counts."""
        with self._lock:
            self._sources.pop(source, None)
            for came_from in [one for one in self._dead if one.source == source]:
                del self._dead[came_from]

    @property
    def open(self) -> int:
        """Messages accepted and not settled; dead letters that hold their offset are among them."""
        with self._lock:
            return sum(len(known.open) for known in self._sources.values())

    @property
    def dead(self) -> dict[UpstreamRecord, str]:
        """Where dead letters hold the offset, each with its message id."""
        with self._lock:
            return dict(self._dead)

    def _settle(self, came_from: UpstreamRecord) -> None:
        self._dead.pop(came_from, None)
        if self._is_open(came_from):
            del self._sources[came_from.source].open[came_from.offset]

    def _is_open(self, came_from: UpstreamRecord) -> bool:
        known = self._sources.get(came_from.source)
        return known is not None and came_from.offset in known.open

    def _take_kept(self, kept: Callable[[str], bool]) -> None:
        """Outside the lock: asking may touch the disk."""
        found = [came_from for came_from, message_id in self.dead.items() if kept(message_id)]
        with self._lock:
            for came_from in found:
                self._settle(came_from)


def in_order(
    send: Callable[..., str | None], callback: Callable[[DeliveryReport], None]
) -> Callable[..., str | None]:
    """A `send_message` whose reports reach `callback` in the order of sending, within each topic and partition.

        send = in_order(producer.send_message, callback)
        send("orders", value, key="alice", record_id=17)

    A message that is sent again is acknowledged after later ones; their reports wait for its report here. Where
    `partition=` is given they wait within that partition, else within the topic, because the partition is not
    known before. One report at a time for each; a callback that raises is logged, and the next report comes.
    """
    return _InOrder(send, callback)


@dataclass(slots=True, eq=False)
class _Place:
    """One message's place in its queue."""

    hear: Callable[[_Place, DeliveryReport | None], None]
    lane: tuple[str, int | None]
    ended: bool = False
    report: DeliveryReport | None = None

    def __call__(self, report: DeliveryReport) -> None:
        self.hear(self, report)


class _InOrder:
    """The queues behind `in_order`, one a lane; each is emptied by one thread at a time."""

    def __init__(self, send: Callable[..., str | None], callback: Callable[[DeliveryReport], None]) -> None:
        self._send = send
        self._callback = callback
        self._lock = threading.Lock()  # guards the places and the two fields below
        self._lanes: dict[tuple[str, int | None], deque[_Place]] = {}
        self._busy: set[tuple[str, int | None]] = set()

    def __call__(self, topic: str, value: Any, key: Any = None, **options: Any) -> str | None:
        place = _Place(self._hear, (topic, options.get("partition")))
        with self._lock:
            self._lanes.setdefault(place.lane, deque()).append(place)
        message_id = None
        try:
            message_id = self._send(topic, value, key, on_delivery=place, **options)
        finally:
            if message_id is None:  # refused, or a confirmed duplicate: no report will come
                self._hear(place, None)
        return message_id

    def _hear(self, place: _Place, report: DeliveryReport | None) -> None:
        with self._lock:
            place.ended, place.report = True, report
            if place.lane in self._busy:  # whoever is at it passes this one on too
                return
            self._busy.add(place.lane)
        while (ready := self._next(place.lane)) is not None:
            self._pass_on(ready)

    def _next(self, lane: tuple[str, int | None]) -> _Place | None:
        with self._lock:
            waiting = self._lanes.get(lane)
            if waiting and waiting[0].ended:
                return waiting.popleft()
            self._busy.discard(lane)
            if not waiting:
                self._lanes.pop(lane, None)
            return None

    def _pass_on(self, place: _Place) -> None:
        if place.report is None:
            return
        try:
            self._callback(place.report)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception("delivery callback failed", extra={"topic": place.lane[0]})

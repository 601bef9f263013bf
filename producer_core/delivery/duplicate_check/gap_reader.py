"""Reads gaps: which of our records are at offsets that no acknowledgement named."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from producer_core.delivery.duplicate_check.offset_gaps import OffsetGap, PartitionGaps, TopicPartition
from producer_core.kafka.clients import reader
from producer_core.messages import record_id

_MOST = 200_000
"""Records that one reading takes at most."""
_BEFORE = 10_000
"""Records read before our first one of a partition: a copy of it stands among them, unless others wrote more since."""
_LEAP = 2_000
"""Records between two gaps from which on the reader leaps instead of reading on."""
_PASSING = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


@dataclass
class GapReadResult:
    """The partition, offset and id of each of our records that was read, and by partition how many offsets were not.

    `passing`: a later reading may see more, because a broker was away or the time ran out.
    """

    records: list[tuple[TopicPartition, int, bytes]] = field(default_factory=list)
    unread: dict[TopicPartition, int] = field(default_factory=dict)
    passing: bool = False


Read = Callable[[Sequence[PartitionGaps], float], GapReadResult]
"""Reads gaps within a time in seconds; never raises for what a broker answers."""


def read_gaps(config: Mapping[str, Any]) -> Read:
    """With the connection and security settings of a client (librdkafka's names)."""

    def read(gaps: Sequence[PartitionGaps], timeout: float) -> GapReadResult:
        return _Round(config, time.monotonic() + timeout).read(gaps)

    return read


@dataclass
class _Partition:
    """What is left to read of one partition: spans in their order, all with a start."""

    spans: list[tuple[int, int]]

    def left(self) -> int:
        return sum(end - start for start, end in self.spans)

    def ends_at(self, offset: int) -> None:
        """Cut off what is beyond the end of the log."""
        self.spans = [(start, min(end, offset)) for start, end in self.spans if start < offset]

    def passed(self, offset: int) -> None:
        """Everything before this offset was read, or is not there any more."""
        while self.spans and self.spans[0][1] <= offset:
            self.spans.pop(0)
        if self.spans and self.spans[0][0] < offset:
            self.spans[0] = (offset, self.spans[0][1])


class _Round:
    """One reading, within its time."""

    def __init__(self, config: Mapping[str, Any], until: float) -> None:
        self._config = config
        self._until = until
        self._found = GapReadResult()
        self._left: dict[TopicPartition, _Partition] = {}
        self._taken = 0

    def read(self, gaps: Sequence[PartitionGaps]) -> GapReadResult:
        for gap in gaps:
            self._left[gap.where] = _Partition([(_start(each), each.end) for each in gap.gaps])
        try:
            with reader(self._config, {"isolation.level": "read_uncommitted"}, name="duplicates") as consumer:
                self._begin(consumer)
                self._go_through(consumer)
        except KafkaException as error:
            self._refused(error.args[0])
        self._found.passing = self._found.passing and bool(self._left)
        for where, partition in self._left.items():
            if partition.spans:
                self._lacks(where, partition.left())
        return self._found

    def _begin(self, consumer: Consumer) -> None:
        for where, partition in list(self._left.items()):
            low, high = consumer.get_watermark_offsets(Place(*where), timeout=self._seconds(), cached=False)
            partition.ends_at(high)
            before = partition.left()
            partition.passed(low)  # retention took it
            self._lacks(where, before - partition.left())
            if not partition.spans:
                del self._left[where]
        consumer.assign([Place(*where, partition.spans[0][0]) for where, partition in self._left.items()])

    def _go_through(self, consumer: Consumer) -> None:
        while self._left:
            if self._taken >= _MOST or time.monotonic() >= self._until:
                self._found.passing = self._taken < _MOST
                return
            for message in consumer.consume(500, timeout=min(0.2, self._seconds())):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._refused(error)
                    if not self._found.passing:
                        return
                else:
                    self._step(consumer, message, end=error is not None)

    def _step(self, consumer: Consumer, message: Any, *, end: bool) -> None:
        where = (message.topic(), message.partition())
        partition = self._left.get(where)
        if partition is None:
            return
        self._taken += 1
        offset = message.offset()
        partition.passed(offset)
        if partition.spans and not end and partition.spans[0][0] <= offset:
            raw = record_id(message.headers())
            if raw is not None:
                self._found.records.append((where, offset, raw))
            partition.passed(offset + 1)
        if not partition.spans:
            del self._left[where]
            consumer.incremental_unassign([Place(*where)])
        elif partition.spans[0][0] > offset + _LEAP:
            consumer.seek(Place(*where, partition.spans[0][0]))

    def _refused(self, error: KafkaError) -> None:
        self._found.passing = error.retriable() or error.code() in _PASSING

    def _lacks(self, where: TopicPartition, count: int) -> None:
        if count:
            self._found.unread[where] = self._found.unread.get(where, 0) + count

    def _seconds(self) -> float:
        return max(0.05, self._until - time.monotonic())


def _start(gap: OffsetGap) -> int:
    return max(0, gap.end - _BEFORE) if gap.start is None else gap.start

"""Read gaps: find this producer's records at offsets that no acknowledgement reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from producer_core.delivery.duplicate_check.offset_gaps import OffsetGap, PartitionGaps, TopicPartition
from producer_core.kafka.clients import reader
from producer_core.messages import record_id

_MAX_RECORDS = 200_000
"""The maximum number of records of one read."""
_LOOKBACK = 10_000
"""Offsets read before the first acknowledged record of a partition. A copy of that record is among them unless other
producers wrote more in between."""
_SEEK_DISTANCE = 2_000
"""The distance in offsets between two gaps above which the reader seeks to the next gap instead of reading up to it."""
_TRANSIENT = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


@dataclass
class GapReadResult:
    """The partition, offset and id of each record that was read, and by partition the number of offsets that were not read.

    `incomplete` means that a later read may find more, because a broker was unavailable or the time ran out.
    """

    records: list[tuple[TopicPartition, int, bytes]] = field(default_factory=list)
    unread: dict[TopicPartition, int] = field(default_factory=dict)
    incomplete: bool = False


Read = Callable[[Sequence[PartitionGaps], float], GapReadResult]
"""Reads gaps within a time in seconds. An error from a broker is part of the result, never an exception."""


def read_gaps(config: Mapping[str, Any]) -> Read:
    """Return a reader with the connection and security settings of a client (librdkafka's names)."""

    def read(gaps: Sequence[PartitionGaps], timeout: float) -> GapReadResult:
        return _GapReader(config, time.monotonic() + timeout).read(gaps)

    return read


@dataclass
class _UnreadSpans:
    """The offsets of one partition that are left to read: ascending spans, each with a start."""

    spans: list[tuple[int, int]]

    def count(self) -> int:
        return sum(end - start for start, end in self.spans)

    def truncate(self, offset: int) -> None:
        """Remove the offsets from the end of the log on."""
        self.spans = [(start, min(end, offset)) for start, end in self.spans if start < offset]

    def advance(self, offset: int) -> None:
        """Remove the offsets before this one: they were read, or the log does not contain them."""
        while self.spans and self.spans[0][1] <= offset:
            self.spans.pop(0)
        if self.spans and self.spans[0][0] < offset:
            self.spans[0] = (offset, self.spans[0][1])


class _GapReader:
    """Reads gaps once, until a deadline in monotonic time."""

    def __init__(self, config: Mapping[str, Any], deadline: float) -> None:
        self._config = config
        self._deadline = deadline
        self._result = GapReadResult()
        self._left: dict[TopicPartition, _UnreadSpans] = {}
        self._records = 0

    def read(self, gaps: Sequence[PartitionGaps]) -> GapReadResult:
        for gap in gaps:
            self._left[gap.where] = _UnreadSpans([(_start(each), each.end) for each in gap.gaps])
        try:
            with reader(self._config, {"isolation.level": "read_uncommitted"}, name="duplicates") as consumer:
                self._assign(consumer)
                self._consume(consumer)
        except KafkaException as error:
            self._failed(error.args[0])
        self._result.incomplete = self._result.incomplete and bool(self._left)
        for where, unread in self._left.items():
            if unread.spans:
                self._count_unread(where, unread.count())
        return self._result

    def _assign(self, consumer: Consumer) -> None:
        for where, unread in list(self._left.items()):
            low, high = consumer.get_watermark_offsets(
                KafkaPartition(*where), timeout=self._timeout(), cached=False
            )
            unread.truncate(high)
            before = unread.count()
            unread.advance(low)  # retention deleted these
            self._count_unread(where, before - unread.count())
            if not unread.spans:
                del self._left[where]
        consumer.assign([KafkaPartition(*where, unread.spans[0][0]) for where, unread in self._left.items()])

    def _consume(self, consumer: Consumer) -> None:
        while self._left:
            if self._records >= _MAX_RECORDS or time.monotonic() >= self._deadline:
                self._result.incomplete = self._records < _MAX_RECORDS
                return
            for message in consumer.consume(500, timeout=min(0.2, self._timeout())):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._failed(error)
                    if not self._result.incomplete:
                        return
                else:
                    self._read_record(consumer, message, end=error is not None)

    def _read_record(self, consumer: Consumer, message: Any, *, end: bool) -> None:
        where = (message.topic(), message.partition())
        unread = self._left.get(where)
        if unread is None:
            return
        self._records += 1
        offset = message.offset()
        unread.advance(offset)
        if unread.spans and not end and unread.spans[0][0] <= offset:
            raw = record_id(message.headers())
            if raw is not None:
                self._result.records.append((where, offset, raw))
            unread.advance(offset + 1)
        if not unread.spans:
            del self._left[where]
            consumer.incremental_unassign([KafkaPartition(*where)])
        elif unread.spans[0][0] > offset + _SEEK_DISTANCE:
            consumer.seek(KafkaPartition(*where, unread.spans[0][0]))

    def _failed(self, error: KafkaError) -> None:
        self._result.incomplete = error.retriable() or error.code() in _TRANSIENT

    def _count_unread(self, where: TopicPartition, count: int) -> None:
        if count:
            self._result.unread[where] = self._result.unread.get(where, 0) + count

    def _timeout(self) -> float:
        return max(0.05, self._deadline - time.monotonic())


def _start(gap: OffsetGap) -> int:
    return max(0, gap.end - _LOOKBACK) if gap.start is None else gap.start

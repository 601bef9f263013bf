"""Reading of a topic for the rows of a send that are on it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core.cli.send.fingerprint import PREFIX
from producer_core.cli.send.state_file import Partition
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import BrokerError, BrokerUnreachable
from producer_core.kafka.clients import NO_SUCH, reader, retry_transient
from producer_core.messages import record_id

_TIMEOUT = 60.0
"""Seconds without a record or an end of partition after which the brokers count as unreachable."""
_BATCH = 1000
_UNCOMMITTED = {"isolation.level": "read_uncommitted"}
_UNAUTHORIZED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


@dataclass
class PositionSearch:
    """The rows of one run that are on the topic, the lowest row of each partition, and the number of records."""

    rows: Ranges = field(default_factory=Ranges)
    first: dict[int, int] = field(default_factory=dict)
    records: int = 0


@dataclass
class RecoveredPosition:
    """The result of reading a topic: runs by number, the low watermark and the end of each partition."""

    runs: dict[int, PositionSearch] = field(default_factory=dict)
    lows: dict[int, int] = field(default_factory=dict)
    offsets: dict[Partition, int] = field(default_factory=dict)
    """Every committed record at or before these offsets was read."""

    def newest(self) -> tuple[int, PositionSearch]:
        """Return the run that started last, or an empty one."""
        run = max(self.runs, default=0)
        return run, self.runs.get(run, PositionSearch())

    def retention_gap(self, run: PositionSearch) -> str | None:
        """Return the evidence that retention may have removed rows of this run; None where it cannot have.

        Rows keep their order in a partition, so retention can only have removed rows below the first one there.
        """
        trimmed = [number for number, low in self.lows.items() if low > 0]
        highest = run.rows.highest
        for number in trimmed:
            below = run.first.get(number)
            missing = _first_missing(run.rows)
            if below is None and missing == 0 and highest >= 0:
                return (
                    f"row {_one_based(missing)} is missing, and partition {number} begins at offset "
                    f"{self.lows[number]:,}"
                )
            if below is not None and missing < below:
                return (
                    f"row {_one_based(missing)} is missing, and partition {number} begins at offset "
                    f"{self.lows[number]:,} with row {_one_based(below)}"
                )
        return None


def _first_missing(rows: Ranges) -> int:
    first = next(iter(rows), None)
    return first[1] if first is not None and first[0] == 0 else 0


def _one_based(row: int) -> str:
    return f"{row + 1:,}"


def recover(
    settings: Mapping[str, Any],
    topic: str,
    session: uuid.UUID,
    *,
    announce: Callable[[int], None] = lambda records: None,
    report: Callable[[int, int], None] = lambda done, total: None,
    clock: Callable[[], float] = time.monotonic,
) -> RecoveredPosition:
    """Read the topic from its start to its current end, and collect the rows of any run of this session's job.

    `announce` gets the number of records, if there are any. `report` gets the offsets passed and their total.
    The end is that of a `read_committed` consumer. The fenced read-back before the send handles open transactions.
    """
    with reader(settings, name="send") as consumer:
        return _read(consumer, topic, session, announce=announce, report=report, clock=clock)


def read_rows(
    settings: Mapping[str, Any],
    topic: str,
    session: uuid.UUID,
    *,
    after: Mapping[Partition, int],
    observe: Callable[[Any], None],
    partition: int | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RecoveredPosition:
    """Do the same as `recover` above the offsets `after`, up to the end of all records, committed or not.

    A partition without an offset is read from its start, and only `partition` if it is given. `observe` gets each message
    read.
    """
    with reader(settings, _UNCOMMITTED, name="send") as consumer:
        return _read(
            consumer, topic, session, after=after, partition=partition, observe=observe, report=report
        )


def _read(
    consumer: Consumer,
    topic: str,
    session: uuid.UUID,
    *,
    after: Mapping[Partition, int] = MappingProxyType({}),
    partition: int | None = None,
    announce: Callable[[int], None] = lambda records: None,
    observe: Callable[[Any], None] = lambda message: None,
    report: Callable[[int, int], None] = lambda done, total: None,
    clock: Callable[[], float] = time.monotonic,
) -> RecoveredPosition:
    found, waiting = RecoveredPosition(), dict[int, tuple[int, int]]()
    for number, (low, end) in _spans(consumer, topic).items():
        found.lows[number] = low
        found.offsets[topic, number] = end - 1
        start = max(low, after.get((topic, number), -1) + 1)
        if start < end and partition in (None, number):
            waiting[number] = (start, end)
    total = _records(waiting)
    if waiting:
        announce(total)
    consumer.assign([TopicPartition(topic, number, start) for number, (start, _) in waiting.items()])
    last_answer = clock()
    while waiting:
        messages = consumer.consume(_BATCH, timeout=0.2)
        for message in messages:
            if message.error() is None:
                observe(message)
            _collect(message, session.bytes[:PREFIX], waiting, found)
        if messages:
            last_answer = clock()
        elif clock() - last_answer > _TIMEOUT:
            raise BrokerUnreachable(f"The brokers stopped responding while {topic} was being read.")
        report(total - _records(waiting), total)
    return found


def _records(spans: Mapping[int, tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans.values())


def topic_ends(settings: Mapping[str, Any], topic: str) -> dict[Partition, int]:
    """Return the offset of the last record of each partition, committed or not; -1 in an empty one."""
    with reader(settings, _UNCOMMITTED, name="send") as consumer:
        return {(topic, number): end - 1 for number, (_, end) in _spans(consumer, topic).items()}


def truncation(settings: Mapping[str, Any], offsets: Mapping[Partition, int]) -> str | None:
    """Describe a partition that ends before an acknowledged offset, because the topic was recreated or truncated.

    Return None where every acknowledged offset is still below the end of its partition.
    """
    # A name with a slash is an internal entry of the transport; below 0 nothing was acknowledged yet.
    acknowledged = {at: offset for at, offset in offsets.items() if "/" not in at[0] and offset >= 0}
    if not acknowledged:
        return None
    with reader(settings, _UNCOMMITTED, name="send") as consumer:
        for (topic, number), offset in acknowledged.items():
            try:
                _, end = _watermarks(consumer, topic, number)
            except KafkaException as error:
                if error.args[0].code() not in NO_SUCH:
                    raise _unreachable(error) from error
                return f"{topic} no longer has partition {number}"
            if end <= offset:
                return f"partition {number} of {topic} ends at offset {end:,}, but offset {offset:,} was acknowledged"
    return None


def _spans(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    try:
        partitions = retry_transient(lambda: _partitions(consumer, topic))
        return {number: _watermarks(consumer, topic, number) for number in partitions}
    except KafkaException as error:
        raise _unreachable(error) from error


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=10).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return list(metadata.partitions)


def _watermarks(consumer: Consumer, topic: str, number: int) -> tuple[int, int]:
    """Return the low and the high watermark of a partition."""

    def query() -> tuple[int, int]:
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10, cached=False)
        return int(low), int(end)

    return retry_transient(query)


def _collect(
    message: Any, prefix: bytes, waiting: dict[int, tuple[int, int]], found: RecoveredPosition
) -> None:
    """Add the message to the rows found. Remove its partition from `waiting` at the end of the partition."""
    number, error, offset = message.partition(), message.error(), message.offset()
    if error is not None and error.code() in _UNAUTHORIZED:
        raise BrokerError(
            f"The topic cannot be read: {error.str()}.",
            fix="Grant READ on the topic; exactly_once requires it.",
        )
    if number not in waiting or (error is not None and error.code() != KafkaError._PARTITION_EOF):
        return  # a transient connection error, from which the client recovers
    _, end = waiting[number]
    if error is None:
        id = record_id(message.headers())
        if id is not None and id[:PREFIX] == prefix and offset < end:
            run = found.runs.setdefault(int.from_bytes(id[PREFIX:16]), PositionSearch())
            seq = int.from_bytes(id[16:])
            run.rows.add(seq, seq + 1)
            run.records += 1
            run.first[number] = min(seq, run.first.get(number, seq))
        offset += 1
    if offset >= end:
        del waiting[number]
    else:
        waiting[number] = (max(offset, waiting[number][0]), end)


def _unreachable(error: KafkaException) -> BrokerError:
    return BrokerUnreachable(f"The topic's offsets are not available: {error.args[0].str()}.")

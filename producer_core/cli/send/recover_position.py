"""What of a file is on its topic already, read there when no state file says it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core.cli.send.fingerprint import PREFIX
from producer_core.cli.send.state_file import Where
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import BrokerError, BrokerUnreachable
from producer_core.kafka.clients import NO_SUCH, reader, retry_transient
from producer_core.messages import record_id

_PATIENCE = 60.0
"""Seconds without a record, or an end of partition, until the brokers count as away."""
_AT_ONCE = 1000
_ALL = {"isolation.level": "read_uncommitted"}
_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


Tell = Callable[[int, int], None]


@dataclass
class PositionSearch:
    """One run's rows on the topic, and the lowest of each partition."""

    rows: Ranges = field(default_factory=Ranges)
    first: dict[int, int] = field(default_factory=dict)


@dataclass
class RecoveredPosition:
    """What a look at a whole topic saw: runs by number, where each partition begins, and how far it was read."""

    runs: dict[int, PositionSearch] = field(default_factory=dict)
    lows: dict[int, int] = field(default_factory=dict)
    offsets: dict[Where, int] = field(default_factory=dict)
    """Every committed record at or before these was seen."""

    def newest(self) -> tuple[int, PositionSearch]:
        """The run that began last; an empty one when there is none."""
        run = max(self.runs, default=0)
        return run, self.runs.get(run, PositionSearch())

    def retention_took(self, run: PositionSearch) -> str | None:
        """What speaks for it that rows of this run were removed; None when none can have been.

        Rows keep their order in a partition, so retention can only have taken rows below the first one there.
        """
        trimmed = [number for number, low in self.lows.items() if low > 0]
        highest = run.rows.highest
        for number in trimmed:
            below = run.first.get(number)
            missing = _first_missing(run.rows)
            if below is None and missing == 0 and highest >= 0:
                return f"row {_words(missing)} is not there, and partition {number} begins at offset {self.lows[number]:,}"
            if below is not None and missing < below:
                return (
                    f"row {_words(missing)} is not there, and partition {number} begins at offset "
                    f"{self.lows[number]:,} with row {_words(below)}"
                )
        return None


def _first_missing(rows: Ranges) -> int:
    first = next(iter(rows), None)
    return first[1] if first is not None and first[0] == 0 else 0


def _words(row: int) -> str:
    return f"{row + 1:,}"


def look_for(
    settings: Mapping[str, Any],
    topic: str,
    session: uuid.UUID,
    *,
    begins: Callable[[int], None] = lambda records: None,
    tell: Tell = lambda done, total: None,
    clock: Callable[[], float] = time.monotonic,
) -> RecoveredPosition:
    """Reads the topic from its start to its end as it is now, for any run of this session's job.

    `begins` hears how many there are, if any, `tell` how many offsets were passed, and of how many. The end is that of a `read_committed` reader;
    what is still open behind it is for the fenced read-back that precedes the sending.
    """
    with reader(settings, name="send") as consumer:
        found, spans = RecoveredPosition(), _spans(consumer, topic)
        for number, (low, end) in spans.items():
            found.lows[number] = low
            found.offsets[topic, number] = end - 1
        total = sum(end - low for low, end in spans.values())
        waiting = {number: span for number, span in spans.items() if span[0] < span[1]}
        if waiting:
            begins(total)
        consumer.assign([TopicPartition(topic, number, low) for number, (low, _) in waiting.items()])
        heard = clock()
        while waiting:
            messages = consumer.consume(_AT_ONCE, timeout=0.2)
            for message in messages:
                _take(message, session.bytes[:PREFIX], waiting, found)
            if messages:
                heard = clock()
            elif clock() - heard > _PATIENCE:
                raise BrokerUnreachable(f"The brokers stopped answering while {topic} was read.")
            tell(total - sum(end - low for low, end in waiting.values()), total)
    return found


def ends(settings: Mapping[str, Any], topic: str) -> dict[Where, int]:
    """Return the offset of the last record of each partition, committed or not; -1 in an empty one."""
    with reader(settings, _ALL, name="send") as consumer:
        return {(topic, number): end - 1 for number, (_, end) in _spans(consumer, topic).items()}


def cut_off(settings: Mapping[str, Any], offsets: Mapping[Where, int]) -> str | None:
    """A sentence about a partition that ends before what was acknowledged there: the topic was made anew, or cut."""
    for (topic, number), offset in offsets.items():
        if "/" in topic or offset < 0:  # a note of the transport's, or nothing yet
            continue
        with reader(settings, _ALL, name="send") as consumer:
            try:
                _, end = _ends(consumer, topic, number)
            except KafkaException as error:
                if error.args[0].code() not in NO_SUCH:
                    raise _unreachable(error) from error
                return f"{topic} has no partition {number} any more"
            if end <= offset:
                return f"partition {number} of {topic} ends at offset {end:,}, and {offset:,} was acknowledged there"
    return None


def _spans(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    try:
        partitions = retry_transient(lambda: _partitions(consumer, topic))
        return {number: _ends(consumer, topic, number) for number in partitions}
    except KafkaException as error:
        raise _unreachable(error) from error


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=10).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return list(metadata.partitions)


def _ends(consumer: Consumer, topic: str, number: int) -> tuple[int, int]:
    """Return both ends of a partition."""

    def ask() -> tuple[int, int]:
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10, cached=False)
        return int(low), int(end)

    return retry_transient(ask)


def _take(message: Any, prefix: bytes, waiting: dict[int, tuple[int, int]], found: RecoveredPosition) -> None:
    number, error, offset = message.partition(), message.error(), message.offset()
    if error is not None and error.code() in _REFUSED:
        raise BrokerError(
            f"The topic cannot be read: {error.str()}.", fix="Grant READ on it; exactly_once needs that."
        )
    if number not in waiting or (error is not None and error.code() != KafkaError._PARTITION_EOF):
        return  # a connection that comes back
    _, end = waiting[number]
    if error is None:
        id = record_id(message.headers())
        if id is not None and id[:PREFIX] == prefix and offset < end:
            run = found.runs.setdefault(int.from_bytes(id[PREFIX:16]), PositionSearch())
            seq = int.from_bytes(id[16:])
            run.rows.add(seq, seq + 1)
            run.first[number] = min(seq, run.first.get(number, seq))
        offset += 1
    if offset >= end:
        del waiting[number]
    else:
        waiting[number] = (max(offset, waiting[number][0]), end)


def _unreachable(error: KafkaException) -> BrokerError:
    return BrokerUnreachable(f"The topic's offsets cannot be asked: {error.args[0].str()}.")

"""Find the keys of dead letters or ambiguous messages that have a newer record on their topic.

A record is newer if it has a higher sequence of the same session, or a later time and any other origin. For a replayed
record the time is that of its first acceptance, so an old value that was replayed late is not newer.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producer_core.kafka.clients import reader
from producer_core.kafka.topic_config import TimeLimit, describe_error
from producer_core.messages import ORIGINAL_TIMESTAMP, parse_id, record_id

MOST_KEYS = 500_000
"""The maximum number of dead letters with a key, over all topics, for which newer records are searched. It limits the memory."""

NEWER_RECORD = (
    "The message was not found, and it may have been written and compacted away. A newer record with its key is on the "
    "topic: sending it again would make an old value the latest."
)
CLOCK_SLACK_S = 10.0  # seconds by which a record's time may be behind the local clock
_TAIL_RECORDS = 100_000
"""Records, over all partitions, that are read to verify a broker's response that none is recent enough."""
_OPEN_TRANSACTION_S = 3.0  # seconds of waiting at an end of partition that an open transaction causes
_MAX_ATTEMPTS = 5  # of one request, while its error is transient
_TRANSIENT = (
    KafkaError._UNKNOWN_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART,
)  # fmt: skip
"""Errors while a partition moves, or until this client has its metadata. The topic itself is known by then."""
_LATEST, _EARLIEST = -1, -2  # special timestamps of the protocol

T = TypeVar("T", int, float)

Session = bytes | None
"""The 16 bytes of a session; None for a record without the id header."""

SequenceLookup = Callable[[bytes], int | None]
"""A function that returns the sequence of one of the producer's own ids, of any session; None for other ids."""
_OWN = b"own"


class KeyIndex:
    """Index the dead letters of one topic that have a key. Each takes about 150 bytes, whatever the length of its key.

    `number` treats all sessions of a producer as one. `slack` is in seconds: how far other clocks may be behind. With
    `replays_only`, only records that were replayed themselves count.
    """

    def __init__(
        self, number: SequenceLookup = lambda id: None, *, slack: float = 0.0, replays_only: bool = False
    ) -> None:
        self._number = number
        self._slack = slack
        self._replays_only = replays_only
        self._by_partition = False
        self._latest_index: dict[int, int] = {}  # hash of a key to the index of its last dead letter
        self._previous = array("q")  # index of the previous dead letter with the same key, or -1
        self._accepted = array("d")
        self._ids: list[str] = []
        self._records: dict[int, dict[Session, tuple[int, float]]] = {}  # highest sequence and latest time

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def oldest(self) -> float:
        return min(self._accepted)

    def add(self, message_id: str, key: bytes, accepted_at: float, *, partition: int | None = None) -> None:
        """Search for newer records of this key, only in `partition` if it is given."""
        key_hash = hash(key) if partition is None else hash((key, partition))
        self._by_partition |= partition is not None
        self._previous.append(self._latest_index.get(key_hash, -1))
        self._latest_index[key_hash] = len(self._ids)
        self._ids.append(message_id)
        self._accepted.append(accepted_at)

    def observe(self, message: Message) -> None:
        """Process a record of the topic. Keys without a dead letter cost one dict lookup."""
        key = message.key()
        if key is None:
            return
        if (key_hash := hash(key)) in self._latest_index:
            self._observe(key_hash, message)
        if self._by_partition and (key_hash := hash((key, message.partition()))) in self._latest_index:
            self._observe(key_hash, message)

    def _observe(self, key_hash: int, message: Message) -> None:
        if self._replays_only and not _is_replay(message):
            return
        raw = record_id(message.headers())
        session, number = (None, 0) if raw is None else self._session_of(raw)
        records = self._records.setdefault(key_hash, {})
        highest, latest = records.get(session, (number, 0.0))
        records[session] = (max(highest, number), max(latest, _record_time(message)))

    def newer(self) -> Iterator[str]:
        """Yield the ids of the dead letters whose key has a newer record among the observed ones."""
        for key_hash, records in self._records.items():
            latest = sorted(
                ((at, session) for session, (_, at) in records.items()), key=lambda item: -item[0]
            )[:2]
            for index in self._indexes(key_hash):
                session, number = self._identity(self._ids[index])
                others = (at for at, other_session in latest if other_session != session)
                since = self._accepted[index] - self._slack
                if records.get(session, (-1, 0.0))[0] > number or next(others, 0.0) > since:
                    yield self._ids[index]

    def _session_of(self, raw: bytes) -> tuple[bytes, int]:
        own = self._number(raw)
        return (raw[:16], int.from_bytes(raw[16:])) if own is None else (_OWN, own)

    def _identity(self, message_id: str) -> tuple[bytes, int]:
        try:
            return self._session_of(parse_id(message_id))
        except (ValueError, OverflowError):
            return b"", 0  # an id of another format: no record on the topic has its session

    def _indexes(self, key_hash: int) -> Iterator[int]:
        index = self._latest_index[key_hash]
        while index >= 0:
            yield index
            index = self._previous[index]


def _is_replay(message: Message) -> bool:
    return any(name == ORIGINAL_TIMESTAMP for name, _ in message.headers() or ())


def _record_time(message: Message) -> float:
    for name, value in message.headers() or ():
        if name == ORIGINAL_TIMESTAMP and isinstance(value, bytes) and value.isdigit():
            return int(value) / 1000
    return max(0, int(message.timestamp()[1])) / 1000


class LaterRecords:
    """Keep the newest record of each key in a part of one partition, for a producer that reads it back after a crash.

    `number` is as in `KeyIndex`. Above `max_keys` keys, only the newest record of the others is kept, for all of them.
    """

    def __init__(self, number: SequenceLookup, *, max_keys: int = MOST_KEYS) -> None:
        self._number = number
        self._max_keys = max_keys
        self._read_at = time.time()
        self._own: dict[int | None, tuple[int, int]] = {}  # hash of a key to sequence and offset
        self._others: dict[int | None, tuple[float, int]] = {}  # the same to time and offset

    @property
    def complete(self) -> bool:
        """Whether the keys did not exceed `max_keys`."""
        return None not in self._own and None not in self._others

    def observe(self, message: Message, *, own_only: bool = False) -> None:
        """Take a record into account, with `own_only` only if this producer wrote it."""
        if (key := message.key()) is None:
            return
        raw = record_id(message.headers())
        number = None if raw is None else self._number(raw)
        if number is None:
            if own_only:
                return
            self._update(self._others, hash(key), (_record_time(message), message.offset()))
        else:
            self._update(self._own, hash(key), (number, message.offset()))

    def _update(
        self, newest: dict[int | None, tuple[T, int]], key_hash: int | None, found: tuple[T, int]
    ) -> None:
        if key_hash not in newest and len(newest) >= self._max_keys:
            key_hash = None
        newest[key_hash] = max(newest.get(key_hash, found), found)

    def after(self, number: int, key: bytes, accepted_at: float) -> int | None:
        """Return the offset of a newer record of this key, or None.

        A message that was accepted after the partition was read has none, because it was sent later than all of them.
        """
        own = self._own.get(hash(key)) or self._own.get(None)
        if own is not None and own[0] > number:
            return own[1]
        other = self._others.get(hash(key)) or self._others.get(None)
        if other is not None and other[0] > accepted_at - CLOCK_SLACK_S and accepted_at <= self._read_at:
            return other[1]
        return None


@dataclass
class KeyScan:
    """The progress of scanning a topic: of `there` relevant records, `looked_at` were read."""

    looked_at: int = 0
    there: int = 0
    complete: bool = False
    trouble: str = ""
    gone: bool = False  # retention removed records of that time


def scan_topic(
    settings: Mapping[str, Any],
    handle: Consumer,
    topic: str,
    partitions: int,
    keys: KeyIndex,
    *,
    limit: TimeLimit,
    max_records: int,
) -> KeyScan:
    """Read the records written to the topic since the oldest dead letter. `handle` must be `read_uncommitted`.

    A broker's response never raises an exception.
    """
    progress = KeyScan()
    try:
        ranges = _ranges(progress, handle, topic, partitions, keys.oldest - CLOCK_SLACK_S, limit)
        waiting = {scan_range.partition: scan_range for scan_range in ranges if scan_range.size}
        progress.there = sum(scan_range.size for scan_range in waiting.values())
        if waiting:
            with reader(settings) as consumer:
                consumer.assign(
                    [TopicPartition(topic, item.partition, item.start) for item in waiting.values()]
                )
                _read(progress, consumer, topic, waiting, keys, limit, max_records)
        progress.complete = not waiting and not progress.trouble
    except KafkaException as error:
        progress.trouble = progress.trouble or describe_error(error.args[0], topic)
    return progress


@dataclass
class _ScanRange:
    """The part of a partition to read: from `start` up to but not including `end`.

    `time_index_suspect` means that its broker returned no record since the time `since`.
    """

    partition: int
    start: int
    end: int
    low: int
    since: float
    time_index_suspect: bool

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def _ranges(
    progress: KeyScan, handle: Consumer, topic: str, partitions: int, since: float, limit: TimeLimit
) -> list[_ScanRange]:
    """Return the range to read in each partition, with three requests for all partitions together."""
    lows = _offsets(handle, topic, partitions, _EARLIEST, limit)
    highs = _offsets(handle, topic, partitions, _LATEST, limit)
    first_since = _offsets(handle, topic, partitions, max(0, int(since * 1000)), limit)
    ranges, tail = [], max(1, _TAIL_RECORDS // partitions)
    for number in range(partitions):
        low, high, first = lows.get(number, 0), highs.get(number, 0), first_since.get(number, -1)
        start = max(low, first if first >= 0 else high - tail)
        ranges.append(_ScanRange(number, start, high, low, since, time_index_suspect=first < 0))
        progress.gone |= 0 < low == first < high
    return ranges


def _offsets(handle: Consumer, topic: str, partitions: int, since: int, limit: TimeLimit) -> dict[int, int]:
    """Query offsets by time. Retry while the error is transient and there is time."""
    requested = [TopicPartition(topic, number, since) for number in range(partitions)]
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            return _offsets_by_partition(handle.offsets_for_times(requested, timeout=limit.question()))
        except KafkaException as error:
            if error.args[0].code() not in _TRANSIENT or attempt == _MAX_ATTEMPTS or not limit.left():
                raise
            handle.list_topics(topic, timeout=limit.question())  # refreshes the client's metadata
    raise AssertionError("the last attempt returns or raises")


def _offsets_by_partition(answers: Sequence[TopicPartition]) -> dict[int, int]:
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {answer.partition: answer.offset for answer in answers}


def _read(
    progress: KeyScan,
    consumer: Consumer,
    topic: str,
    waiting: dict[int, _ScanRange],
    keys: KeyIndex,
    limit: TimeLimit,
    max_records: int,
) -> None:
    """Read until every range is complete, which removes it from `waiting`, or until a limit is reached."""
    last_record, ends = time.monotonic(), set[int]()
    while waiting and not progress.trouble:
        if not limit.left():
            progress.trouble = "the time limit was reached"
            return
        for message in consumer.consume(500, timeout=min(0.2, limit.question())):
            scan_range, error = waiting.get(message.partition()), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                progress.trouble = progress.trouble or _error_text(error, topic)
            elif scan_range is None:
                continue
            elif error is not None:
                # Only an end at or above the watermark counts: an open transaction causes an earlier one.
                ends.add(scan_range.partition)
                if message.offset() >= scan_range.end:
                    del waiting[scan_range.partition]
            else:
                last_record = time.monotonic()
                _add_record(progress, scan_range, message, keys)
                if message.offset() >= scan_range.end - 1:
                    del waiting[scan_range.partition]
        if progress.looked_at >= max_records and waiting:
            progress.trouble = progress.trouble or f"the limit of {max_records:,} records was reached"
        elif waiting.keys() <= ends and time.monotonic() - last_record > _OPEN_TRANSACTION_S:
            progress.trouble = progress.trouble or "an open transaction hides the remaining records"


def _add_record(progress: KeyScan, scan_range: _ScanRange, message: Message, keys: KeyIndex) -> None:
    progress.looked_at += 1
    keys.observe(message)
    if (
        scan_range.time_index_suspect
        and scan_range.start > scan_range.low
        and message.timestamp()[1] >= scan_range.since * 1000
    ):
        progress.trouble = "the broker does not find records by time, and there are too many to read"


def _error_text(error: KafkaError, topic: str) -> str:
    """Return the text of an error that ends the scan, or "": an unavailable broker may return in time."""
    permanent_errors = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
    )
    return describe_error(error, topic) if error.code() in permanent_errors else ""

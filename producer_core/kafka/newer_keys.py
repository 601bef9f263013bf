"""The keys of a topic's dead letters, or of messages in doubt, and which of them have a newer record on that topic.

Newer is: of the same session with a higher sequence, or of anybody else with a later time. The time is that of the
first acceptance where the record was itself a replay, so that an old value that was replayed late is not newer.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producer_core.kafka.clients import reader
from producer_core.kafka.topic_config import TimeLimit, words
from producer_core.messages import ORIGINAL_TIMESTAMP, parse_id, record_id

MOST_KEYS = 500_000
"""Letters with a key, of all topics together, that are looked for: what bounds the memory."""

NEWER_RECORD = (
    "It was not found, and it may have been written and compacted away. A newer record of its key is on the topic: "
    "sending it again would put an old value last."
)
SLACK = 10.0  # seconds by which a record's time may be behind the moment that our clock said
_TAIL = 100_000  # records, of all partitions together, read to check a broker that says «nothing since then»
_HELD_BACK = 3.0  # seconds at an end that an open transaction makes
_TRIES = 5  # of one question, while its answer is transient
_TRANSIENT = (
    KafkaError._UNKNOWN_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART,
)  # fmt: skip
"""While a partition moves, or until this client has heard of it. The topic itself is known by then."""
_LATEST, _EARLIEST = -1, -2  # in the place of a time, as the protocol has it

T = TypeVar("T", int, float)

Session = bytes | None
"""16 bytes of a session; None for a record without our id."""

Number = Callable[[bytes], int | None]
"""The sequence of an id of the producer that asks, in whichever session; None for any other id."""
_OWN = b"own"


class KeyIndex:
    """The dead letters of one topic that have a key: about 150 bytes each, whatever the length of the key.

    `number` makes one session of all of a producer's, `slack` is in seconds: how far the clocks of others may be behind.
    `replays_only`: records count that were themselves replayed.
    """

    def __init__(
        self, number: Number = lambda id: None, *, slack: float = 0.0, replays_only: bool = False
    ) -> None:
        self._number = number
        self._slack = slack
        self._replays_only = replays_only
        self._by_partition = False
        self._last: dict[int, int] = {}  # hash of a key to the place of its last dead letter
        self._before = array("q")  # place of the dead letter of the same key before it, or -1
        self._accepted = array("d")
        self._ids: list[str] = []
        self._seen: dict[int, dict[Session, tuple[int, float]]] = {}  # highest sequence and latest time

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def oldest(self) -> float:
        return min(self._accepted)

    def add(self, message_id: str, key: bytes, accepted_at: float, *, partition: int | None = None) -> None:
        """Look for newer records of this key; with a `partition` in that one only."""
        hashed = hash(key) if partition is None else hash((key, partition))
        self._by_partition |= partition is not None
        self._before.append(self._last.get(hashed, -1))
        self._last[hashed] = len(self._ids)
        self._ids.append(message_id)
        self._accepted.append(accepted_at)

    def saw(self, message: Message) -> None:
        """A record of the topic; a key that no dead letter has costs one look into a dict."""
        key = message.key()
        if key is None:
            return
        if (hashed := hash(key)) in self._last:
            self._saw(hashed, message)
        if self._by_partition and (hashed := hash((key, message.partition()))) in self._last:
            self._saw(hashed, message)

    def _saw(self, hashed: int, message: Message) -> None:
        if self._replays_only and not _is_replay(message):
            return
        raw = record_id(message.headers())
        session, number = (None, 0) if raw is None else self._whose(raw)
        seen = self._seen.setdefault(hashed, {})
        highest, latest = seen.get(session, (number, 0.0))
        seen[session] = (max(highest, number), max(latest, _moment(message)))

    def newer(self) -> Iterator[str]:
        """The ids of the dead letters whose key has a newer record among those that were seen."""
        for hashed, seen in self._seen.items():
            latest = sorted(((at, session) for session, (_, at) in seen.items()), key=lambda one: -one[0])[:2]
            for place in self._places(hashed):
                session, number = self._identity(self._ids[place])
                others = (at for at, whose in latest if whose != session)
                since = self._accepted[place] - self._slack
                if seen.get(session, (-1, 0.0))[0] > number or next(others, 0.0) > since:
                    yield self._ids[place]

    def _whose(self, raw: bytes) -> tuple[bytes, int]:
        own = self._number(raw)
        return (raw[:16], int.from_bytes(raw[16:])) if own is None else (_OWN, own)

    def _identity(self, message_id: str) -> tuple[bytes, int]:
        try:
            return self._whose(parse_id(message_id))
        except (ValueError, OverflowError):
            return b"", 0  # somebody else's id: no record on the topic has its session

    def _places(self, hashed: int) -> Iterator[int]:
        place = self._last[hashed]
        while place >= 0:
            yield place
            place = self._before[place]


def _is_replay(message: Message) -> bool:
    return any(name == ORIGINAL_TIMESTAMP for name, _ in message.headers() or ())


def _moment(message: Message) -> float:
    for name, value in message.headers() or ():
        if name == ORIGINAL_TIMESTAMP and isinstance(value, bytes) and value.isdigit():
            return int(value) / 1000
    return max(0, int(message.timestamp()[1])) / 1000


class LaterRecords:
    """The newest record of each key in a part of one partition, for a producer that reads it back after a crash.

    `number` is as in `KeyIndex`. Of keys beyond the first `most` only the newest of all is known, and stands for each.
    """

    def __init__(self, number: Number, *, most: int = MOST_KEYS) -> None:
        self._number = number
        self._most = most
        self._read_at = time.time()
        self._own: dict[int | None, tuple[int, int]] = {}  # hash of a key to sequence and offset
        self._others: dict[int | None, tuple[float, int]] = {}  # the same to time and offset

    def saw(self, message: Message) -> None:
        if (key := message.key()) is None:
            return
        raw = record_id(message.headers())
        number = None if raw is None else self._number(raw)
        if number is None:
            self._keep(self._others, hash(key), (_moment(message), message.offset()))
        else:
            self._keep(self._own, hash(key), (number, message.offset()))

    def _keep(self, kept: dict[int | None, tuple[T, int]], hashed: int | None, found: tuple[T, int]) -> None:
        if hashed not in kept and len(kept) >= self._most:
            hashed = None
        kept[hashed] = max(kept.get(hashed, found), found)

    def after(self, number: int, key: bytes, accepted_at: float) -> int | None:
        """Return the offset of a newer record of this key; None where there is none.

        A message that was accepted after the partition was read has none: it was sent later than what was there.
        """
        own = self._own.get(hash(key)) or self._own.get(None)
        if own is not None and own[0] > number:
            return own[1]
        other = self._others.get(hash(key)) or self._others.get(None)
        if other is not None and other[0] > accepted_at - SLACK and accepted_at <= self._read_at:
            return other[1]
        return None


@dataclass
class KeyScan:
    """How far one look at a topic went: `there` records could tell, `looked_at` were read."""

    looked_at: int = 0
    there: int = 0
    complete: bool = False
    trouble: str = ""
    gone: bool = False  # retention has taken records of that time


def look(
    settings: Mapping[str, Any],
    handle: Consumer,
    topic: str,
    partitions: int,
    keys: KeyIndex,
    *,
    bound: TimeLimit,
    most: int,
) -> KeyScan:
    """Reads what was written to the topic since the oldest dead letter; `handle` must be `read_uncommitted`.

    Never raises for what a broker answers.
    """
    progress = KeyScan()
    try:
        spans = _spans(progress, handle, topic, partitions, keys.oldest - SLACK, bound)
        waiting = {span.partition: span for span in spans if span.size}
        progress.there = sum(span.size for span in waiting.values())
        if waiting:
            with reader(settings) as consumer:
                consumer.assign([TopicPartition(topic, one.partition, one.start) for one in waiting.values()])
                _read(progress, consumer, topic, waiting, keys, bound, most)
        progress.complete = not waiting and not progress.trouble
    except KafkaException as error:
        progress.trouble = progress.trouble or words(error.args[0], topic)
    return progress


@dataclass
class _Span:
    """The part of a partition to read: from `start` up to, not including, `end`. `doubted`: its broker says that
    nothing in it is as young as `moment`."""

    partition: int
    start: int
    end: int
    low: int
    moment: float
    doubted: bool

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def _spans(
    progress: KeyScan, handle: Consumer, topic: str, partitions: int, moment: float, bound: TimeLimit
) -> list[_Span]:
    """Three questions for all partitions together, however many there are."""
    lows = _offsets(handle, topic, partitions, _EARLIEST, bound)
    highs = _offsets(handle, topic, partitions, _LATEST, bound)
    young = _offsets(handle, topic, partitions, max(0, int(moment * 1000)), bound)
    spans, tail = [], max(1, _TAIL // partitions)
    for number in range(partitions):
        low, high, first = lows.get(number, 0), highs.get(number, 0), young.get(number, -1)
        start = max(low, first if first >= 0 else high - tail)
        spans.append(_Span(number, start, high, low, moment, doubted=first < 0))
        progress.gone |= 0 < low == first < high
    return spans


def _offsets(handle: Consumer, topic: str, partitions: int, moment: int, bound: TimeLimit) -> dict[int, int]:
    """Ask again while the answer is transient and there is time."""
    asked = [TopicPartition(topic, number, moment) for number in range(partitions)]
    for tried in range(1, _TRIES + 1):
        try:
            return _answered(handle.offsets_for_times(asked, timeout=bound.question()))
        except KafkaException as error:
            if error.args[0].code() not in _TRANSIENT or tried == _TRIES or not bound.left():
                raise
            handle.list_topics(topic, timeout=bound.question())  # what the client knows is renewed with it
    raise AssertionError("the last try returns or raises")


def _answered(answers: Sequence[TopicPartition]) -> dict[int, int]:
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {answer.partition: answer.offset for answer in answers}


def _read(
    progress: KeyScan,
    consumer: Consumer,
    topic: str,
    waiting: dict[int, _Span],
    keys: KeyIndex,
    bound: TimeLimit,
    most: int,
) -> None:
    """Until every span is read (it leaves `waiting`), or a bound is met."""
    heard, ends = time.monotonic(), set[int]()
    while waiting and not progress.trouble:
        if not bound.left():
            progress.trouble = "the time for it was up"
            return
        for message in consumer.consume(500, timeout=min(0.2, bound.question())):
            span, error = waiting.get(message.partition()), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                progress.trouble = progress.trouble or _refused(error, topic)
            elif span is None:
                continue
            elif error is not None:
                # Only an end at or past the watermark counts: an open transaction makes an earlier one.
                ends.add(span.partition)
                if message.offset() >= span.end:
                    del waiting[span.partition]
            else:
                heard = time.monotonic()
                _record(progress, span, message, keys)
                if message.offset() >= span.end - 1:
                    del waiting[span.partition]
        if progress.looked_at >= most and waiting:
            progress.trouble = progress.trouble or f"no more than {most:,} are read"
        elif waiting.keys() <= ends and time.monotonic() - heard > _HELD_BACK:
            progress.trouble = progress.trouble or "a transaction that has not ended holds the rest back"


def _record(progress: KeyScan, span: _Span, message: Message, keys: KeyIndex) -> None:
    progress.looked_at += 1
    keys.saw(message)
    if span.doubted and span.start > span.low and message.timestamp()[1] >= span.moment * 1000:
        progress.trouble = "the broker does not find records by their time, and there are many"


def _refused(error: KafkaError, topic: str) -> str:
    """A refusal ends the look; a broker that went away may come back in time."""
    refusals = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
    )
    return words(error, topic) if error.code() in refusals else ""

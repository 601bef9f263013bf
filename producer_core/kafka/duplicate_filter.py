"""A reader's memory of message ids: the second copy of a record is dropped, a first copy never.

    seen = Seen()
    for message in unique(consumed, seen):
        handle(message)

A copy comes about when a producer could not know whether its message had landed and sent it again. Both carry one
id in the header `pc-id`, which is all that counts here.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from producer_core.messages import ID_HEADER

logger = logging.getLogger(__name__)

M = TypeVar("M")
_Place = tuple[int, int]  # partition and offset; offset -1 where a message does not tell
_Lane = tuple[str, int | None]

_SESSIONS = 10_000
"""Producers whose unbroken rows a partition remembers; the least recently seen goes."""
_MAGIC = b"pcs1"
_COUNT, _HIGH, _RUN, _SEEN = (struct.Struct(form) for form in (">I", ">iq", ">16sqqq", ">24siq"))


def unique(messages: Iterable[M], seen: Seen | None = None) -> Iterator[M]:
    """The messages without second copies: confluent_kafka's, kafka-python's, or anything with `headers`.

    What has no id passes through, errors and None included. Pass your own `seen` to save and restore what it knows.
    """
    memory = Seen() if seen is None else seen
    return (message for message in messages if memory.first(message))


@dataclass(slots=True)
class _Session:
    """One producer in one partition: an unbroken row of sequences seen, and the highest that was forgotten."""

    low: int
    high: int
    forgotten: int = -1


@dataclass(slots=True)
class _Memory:
    """One partition: the ids seen last with their places, oldest first, and rows that reach further back."""

    window: OrderedDict[bytes, _Place] = field(default_factory=OrderedDict)
    sessions: OrderedDict[bytes, _Session] = field(default_factory=OrderedDict)
    highs: dict[int, int] = field(default_factory=dict)  # partition to the highest offset read
    told: bool = False


class Seen:
    """Which ids were read. For one thread.

    A second copy is certainly dropped while fewer than `window` other records came between the two, and beyond
    that as long as a producer's sequences come without a gap (a topic with one partition). Further apart, nobody
    can tell: such a record is yielded, counted in `undecided`, and `on_undecided(text)` hears of the first in each
    partition (default: a warning in the log). A record that is read again at its own offset, after a restart or a
    seek, is the same copy and is yielded again.

    `by="partition"` (default) remembers each partition by itself, so that its memory can follow the partition to
    another reader. A message without a key may be sent again to another partition: `by="topic"` finds that copy too,
    for a reader that has all partitions. `header` may name another header of 24 bytes (16 of a source, 8 of a
    big-endian number), such as one that a copying program gives its records.
    """

    def __init__(
        self,
        *,
        window: int = 100_000,
        by: Literal["partition", "topic"] = "partition",
        header: str = ID_HEADER,
        on_undecided: Callable[[str], None] | None = None,
    ) -> None:
        if window < 1:
            raise ValueError("A window below 1 would remember nothing.")
        self.dropped = self.undecided = self.without_id = 0
        self._size = window
        self._by_topic = by == "topic"
        self._header = header
        self._tell = on_undecided or (lambda text: logger.warning("a copy cannot be told: %s", text))
        self._lanes: dict[_Lane, _Memory] = {}

    def first(self, message: Any) -> bool:
        """Whether to use this message; False for the second copy of one that was read."""
        raw = self._id(message)
        if raw is None:
            self.without_id += 1
            return True
        topic, partition, offset = _where(message)
        lane = self._lane(topic, partition)
        memory = self._lanes.setdefault(lane, _Memory())
        again = 0 <= offset <= memory.highs.get(partition, -1)  # we were at this offset before
        if offset > memory.highs.get(partition, -1):
            memory.highs[partition] = offset
        new = self._is_new(lane, memory, raw, (partition, offset), again)
        self.dropped += not new
        return new

    def save(self, topic: str, partition: int | None = None) -> bytes:
        """What is known of a partition, to keep beside the consumer's offsets, in one transaction if you can.

        `by="topic"` takes no partition. Up to some 20 bytes for each record of the window.
        """
        memory = self._lanes.get((topic, partition), _Memory())
        parts = [_MAGIC]
        parts += [_COUNT.pack(len(memory.highs)), *(_HIGH.pack(*item) for item in memory.highs.items())]
        parts.append(_COUNT.pack(len(memory.sessions)))
        parts += [_RUN.pack(name, row.low, row.high, row.forgotten) for name, row in memory.sessions.items()]
        parts += [_SEEN.pack(raw, *place) for raw, place in memory.window.items()]
        return zlib.compress(b"".join(parts), 1)

    def restore(self, data: bytes, topic: str, partition: int | None = None) -> None:
        """Take up what `save` returned. ValueError when it is something else or damaged."""
        try:
            self._lanes[topic, partition] = _unpacked(zlib.decompress(data))
        except (zlib.error, struct.error) as error:
            raise ValueError(f"This is nothing that Seen.save returned: {error}.") from error

    def forget(self, topic: str, partition: int | None = None) -> None:
        """The partition was revoked: another reader goes on with it."""
        self._lanes.pop((topic, partition), None)

    def _lane(self, topic: str, partition: int) -> _Lane:
        return (topic, None if self._by_topic else partition)

    def _id(self, message: Any) -> bytes | None:
        for name, value in _attribute(message, "headers") or ():
            if name == self._header and isinstance(value, bytes) and len(value) == 24:
                return value
        return None

    def _is_new(self, lane: _Lane, memory: _Memory, raw: bytes, place: _Place, again: bool) -> bool:
        before = memory.window.get(raw)
        if before is not None:  # read again at its own offset, or at one where it may have been the first
            return place[1] >= 0 and (before == place or (again and not _later(place, before)))
        session, number = memory.sessions.get(raw[:16]), int.from_bytes(raw[16:])
        if session is not None and session.low <= number <= session.high:
            if not again:
                return False
            self._undecided(lane, memory, raw)
        elif session is not None and number <= session.forgotten:
            self._undecided(lane, memory, raw)
        self._remember(memory, raw, place)
        return True

    def _undecided(self, lane: _Lane, memory: _Memory, raw: bytes) -> None:
        self.undecided += 1
        if not memory.told:
            memory.told = True
            where = lane[0] if lane[1] is None else f"{lane[0]}, partition {lane[1]}"
            self._tell(
                f"a record of {where} is older than what is remembered ({self._size:,} records), so it is "
                "passed on whether it is a copy or not. A larger window would tell."
            )

    def _remember(self, memory: _Memory, raw: bytes, place: _Place) -> None:
        name, number = raw[:16], int.from_bytes(raw[16:])
        memory.window[raw] = place
        session = memory.sessions.get(name)
        if session is None:
            session = memory.sessions[name] = _Session(number, number)
            if len(memory.sessions) > _SESSIONS:
                memory.sessions.popitem(last=False)
        else:
            memory.sessions.move_to_end(name)
        _extend(memory, name, session)
        if len(memory.window) > self._size:
            _forget(memory, memory.window.popitem(last=False)[0])


def _extend(memory: _Memory, name: bytes, session: _Session) -> None:
    """The row goes on for as long as the next sequence has been seen."""
    while name + (session.high + 1).to_bytes(8, "big") in memory.window:
        session.high += 1


def _forget(memory: _Memory, raw: bytes) -> None:
    """An id left the window. A row that it is no part of begins anew with it when it is the younger one."""
    name, number = raw[:16], int.from_bytes(raw[16:])
    session = memory.sessions.get(name)
    if session is None or session.low <= number <= session.high:
        return
    if number < session.low:
        session.forgotten = max(session.forgotten, number)
    else:
        session.forgotten = max(session.forgotten, session.high)
        session.low = session.high = number
        _extend(memory, name, session)


def _later(place: _Place, before: _Place) -> bool:
    """Whether a copy lies behind another on the log; of two partitions nobody can say."""
    return place[0] == before[0] and place[1] > before[1]


def _where(message: Any) -> tuple[str, int, int]:
    """Topic, partition and offset; a message without an offset is no reading that could be repeated."""
    topic, partition, offset = (_attribute(message, name) for name in ("topic", "partition", "offset"))
    return topic or "", partition or 0, -1 if offset is None else offset


def _attribute(message: Any, name: str) -> Any:
    """confluent_kafka has methods, kafka-python attributes."""
    found = getattr(message, name, None)
    return found() if callable(found) else found


def _unpacked(data: bytes) -> _Memory:
    if not data.startswith(_MAGIC):
        raise struct.error("it begins otherwise")
    memory, at = _Memory(), len(_MAGIC)
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    memory.highs.update(_HIGH.iter_unpack(data[at : at + count * _HIGH.size]))
    at += count * _HIGH.size
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    for name, low, high, forgotten in _RUN.iter_unpack(data[at : at + count * _RUN.size]):
        memory.sessions[name] = _Session(low, high, forgotten)
    at += count * _RUN.size
    for raw, partition, offset in _SEEN.iter_unpack(data[at:]):
        memory.window[raw] = (partition, offset)
    return memory

"""Drop duplicate records in a consumer: the second copy of a record is dropped, a first copy never.

    seen = Seen()
    for message in unique(consumed, seen):
        handle(message)

Duplicates arise when a producer cannot determine whether its message was written and sends it again. Both copies have
the same id in the header `pc-id`. Only this id is compared.
"""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from producer_core._internal.id_header import ID_HEADER, record_id
from producer_core._internal.log_fields import with_fields
from producer_core._internal.plural import plural
from producer_core._internal.queued_logger import queued_logger

logger = queued_logger(__name__)

M = TypeVar("M")
_Position = tuple[int, int]  # partition and offset; offset -1 for a message without one
_Scope = tuple[str, int | None]

_MAX_SESSIONS = 10_000
"""The maximum number of producers per partition whose contiguous sequences are remembered. The least recently seen is removed."""
_MAGIC = b"pcs1"
_COUNT_FORMAT, _OFFSET_FORMAT, _SESSION_FORMAT, _ID_FORMAT = (
    struct.Struct(form) for form in (">I", ">iq", ">16sqqq", ">24siq")
)


def unique(messages: Iterable[M], seen: Seen | None = None) -> Iterator[M]:
    """Return the messages without duplicates: those of confluent_kafka, kafka-python, or any objects with `headers`.

    Messages without an id pass through, including errors and None. Pass your own `seen` to save and restore its state.
    """
    memory = Seen() if seen is None else seen
    return (message for message in messages if memory.first(message))


@dataclass(slots=True)
class _Session:
    """One producer in one partition: a contiguous range of sequences seen, and the highest sequence forgotten."""

    low: int
    high: int
    forgotten: int = -1


@dataclass(slots=True)
class _PartitionMemory:
    """One partition: the latest ids with their positions, oldest first, and older contiguous ranges."""

    window: OrderedDict[bytes, _Position] = field(default_factory=OrderedDict)
    sessions: OrderedDict[bytes, _Session] = field(default_factory=OrderedDict)
    highs: dict[int, int] = field(default_factory=dict)  # partition to the highest offset read
    reported: bool = False


class Seen:
    """Remember the ids of records that were read. For use by one thread.

    A duplicate is always dropped if fewer than `window` other records came between the copies. Beyond that it is dropped
    as long as the producer's sequences have no gap, as on a topic with one partition. Otherwise the filter cannot decide:
    it yields the record, counts it in `undecided`, and calls `on_undecided(text)` for the first one in each partition
    (default: a warning in the log). A record that is read again at its own offset, after a restart or a seek, is the same
    copy and is yielded again.

    `by="partition"` (default) remembers each partition separately, so that its state can move to another consumer with
    the partition. A message without a key may be sent again to another partition: `by="topic"` finds that duplicate too,
    in a consumer of all partitions. `header` can name another header of 24 bytes (16 for the source, 8 for a big-endian
    number), such as one that a replication tool adds. The id as text is accepted too.
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
            raise ValueError("The window must be at least 1.")
        self.dropped = self.undecided = self.without_id = 0
        self._size = window
        self._by_topic = by == "topic"
        self._header = header
        self._report = on_undecided or _log_undecided
        self._memories: dict[_Scope, _PartitionMemory] = {}

    def first(self, message: Any) -> bool:
        """Return whether to use this message: False for a duplicate of a record that was read."""
        id_bytes = self._id(message)
        if id_bytes is None:
            self.without_id += 1
            return True
        topic, partition, offset = _position_of(message)
        scope = self._scope(topic, partition)
        memory = self._memories.setdefault(scope, _PartitionMemory())
        reread = 0 <= offset <= memory.highs.get(partition, -1)  # this offset was read before
        if offset > memory.highs.get(partition, -1):
            memory.highs[partition] = offset
        new = self._is_new(scope, memory, id_bytes, (partition, offset), reread)
        self.dropped += not new
        return new

    def save(self, topic: str, partition: int | None = None) -> bytes:
        """Return the state of a partition. Store it with the consumer's offsets, in one transaction if possible.

        With `by="topic"` there is no partition. The state takes up to about 20 bytes per record of the window.
        """
        memory = self._memories.get((topic, partition), _PartitionMemory())
        parts = [_MAGIC]
        parts += [
            _COUNT_FORMAT.pack(len(memory.highs)),
            *(_OFFSET_FORMAT.pack(*item) for item in memory.highs.items()),
        ]
        parts.append(_COUNT_FORMAT.pack(len(memory.sessions)))
        parts += [
            _SESSION_FORMAT.pack(name, session.low, session.high, session.forgotten)
            for name, session in memory.sessions.items()
        ]
        parts += [_ID_FORMAT.pack(id_bytes, *position) for id_bytes, position in memory.window.items()]
        return zlib.compress(b"".join(parts), 1)

    def restore(self, data: bytes, topic: str, partition: int | None = None) -> None:
        """Restore the state that `save` returned. Raise ValueError for other or damaged data."""
        try:
            self._memories[topic, partition] = _decode(zlib.decompress(data))
        except (zlib.error, struct.error) as error:
            raise ValueError(f"The data was not returned by Seen.save: {error}.") from error

    def forget(self, topic: str, partition: int | None = None) -> None:
        """Remove the state of a partition that was revoked and moves to another consumer."""
        self._memories.pop((topic, partition), None)

    def _scope(self, topic: str, partition: int) -> _Scope:
        return (topic, None if self._by_topic else partition)

    def _id(self, message: Any) -> bytes | None:
        return record_id(_attribute(message, "headers"), self._header)

    def _is_new(
        self, scope: _Scope, memory: _PartitionMemory, id_bytes: bytes, position: _Position, reread: bool
    ) -> bool:
        earlier = memory.window.get(id_bytes)
        # read again at its own offset, or at one where it may have been the first copy
        if earlier is not None:
            return position[1] >= 0 and (earlier == position or (reread and not _is_later(position, earlier)))
        session, number = memory.sessions.get(id_bytes[:16]), int.from_bytes(id_bytes[16:])
        if session is not None and session.low <= number <= session.high:
            if not reread:
                return False
            self._undecided(scope, memory, id_bytes)
        elif session is not None and number <= session.forgotten:
            self._undecided(scope, memory, id_bytes)
        self._remember(memory, id_bytes, position)
        return True

    def _undecided(self, scope: _Scope, memory: _PartitionMemory, id_bytes: bytes) -> None:
        self.undecided += 1
        if not memory.reported:
            memory.reported = True
            label = scope[0] if scope[1] is None else f"{scope[0]}, partition {scope[1]}"
            self._report(
                f"a record of {label} is older than the window of {plural(self._size, 'record')}, so it is passed on although "
                "it may be a duplicate. Use a larger window to detect it."
            )

    def _remember(self, memory: _PartitionMemory, id_bytes: bytes, position: _Position) -> None:
        name, number = id_bytes[:16], int.from_bytes(id_bytes[16:])
        memory.window[id_bytes] = position
        session = memory.sessions.get(name)
        if session is None:
            session = memory.sessions[name] = _Session(number, number)
            if len(memory.sessions) > _MAX_SESSIONS:
                memory.sessions.popitem(last=False)
        else:
            memory.sessions.move_to_end(name)
        _extend(memory, name, session)
        if len(memory.window) > self._size:
            _on_evicted(memory, memory.window.popitem(last=False)[0])


def _log_undecided(text: str) -> None:
    logger.warning(**with_fields("duplicate check undecided", reason=text))


def _extend(memory: _PartitionMemory, name: bytes, session: _Session) -> None:
    """Extend the contiguous range while the next sequence has been seen."""
    while name + (session.high + 1).to_bytes(8, "big") in memory.window:
        session.high += 1


def _on_evicted(memory: _PartitionMemory, id_bytes: bytes) -> None:
    """Update the session of an id that left the window. If the id is above the range, the range restarts there."""
    name, number = id_bytes[:16], int.from_bytes(id_bytes[16:])
    session = memory.sessions.get(name)
    if session is None or session.low <= number <= session.high:
        return
    if number < session.low:
        session.forgotten = max(session.forgotten, number)
    else:
        session.forgotten = max(session.forgotten, session.high)
        session.low = session.high = number
        _extend(memory, name, session)


def _is_later(position: _Position, earlier: _Position) -> bool:
    """Return whether a copy follows another one in the log. Positions on two partitions cannot be compared."""
    return position[0] == earlier[0] and position[1] > earlier[1]


def _position_of(message: Any) -> tuple[str, int, int]:
    """Return topic, partition and offset; -1 for a message without an offset, which cannot be read again."""
    topic, partition, offset = (_attribute(message, name) for name in ("topic", "partition", "offset"))
    return topic or "", partition or 0, -1 if offset is None else offset


def _attribute(message: Any, name: str) -> Any:
    """Return a value that confluent_kafka has as a method and kafka-python as an attribute."""
    found = getattr(message, name, None)
    return found() if callable(found) else found


def _decode(data: bytes) -> _PartitionMemory:
    if not data.startswith(_MAGIC):
        raise struct.error("unknown format")
    memory, cursor = _PartitionMemory(), len(_MAGIC)
    (count,) = _COUNT_FORMAT.unpack_from(data, cursor)
    cursor += _COUNT_FORMAT.size
    memory.highs.update(_OFFSET_FORMAT.iter_unpack(data[cursor : cursor + count * _OFFSET_FORMAT.size]))
    cursor += count * _OFFSET_FORMAT.size
    (count,) = _COUNT_FORMAT.unpack_from(data, cursor)
    cursor += _COUNT_FORMAT.size
    for name, low, high, forgotten in _SESSION_FORMAT.iter_unpack(
        data[cursor : cursor + count * _SESSION_FORMAT.size]
    ):
        memory.sessions[name] = _Session(low, high, forgotten)
    cursor += count * _SESSION_FORMAT.size
    for id_bytes, partition, offset in _ID_FORMAT.iter_unpack(data[cursor:]):
        memory.window[id_bytes] = (partition, offset)
    return memory

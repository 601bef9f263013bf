"""The journal's record of one message, and its encoding."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from producer_core.messages import ANYWHERE, Placement

if TYPE_CHECKING:
    from producer_core.delivery.delivery import Delivery

_FIXED = struct.Struct(">QdqiiiHIB")
"""Sequence, accepted at, timestamp, partition, lengths of key, value and topic, number of headers, has a checksum."""
_pack = _FIXED.pack
_LENGTH = struct.Struct(">i")
_NULL = -1
"""The length stored for None."""


class JournalRecord(NamedTuple):
    """Everything needed to send a message again under its own id, byte for byte.

    `headers` are the user's headers, without the id header. `placement` is the caller's choice of partition and
    timestamp. `accepted_at` is in seconds since 1970. `checksum` belongs to the message's claim, if it has one.
    """

    seq: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    placement: Placement = ANYWHERE
    accepted_at: float = 0.0
    checksum: str | None = None


def encode(record: JournalRecord | Delivery) -> bytes:
    """Encode a record. A delivery has the same field names; building a record from it first takes twice as long."""
    topic, key, value, headers, checksum = (
        record.topic.encode(), record.key, record.value, record.headers, record.checksum
    )  # fmt: skip
    partition, timestamp_ms, _ = record.placement
    fixed = _pack(
        record.seq, record.accepted_at, timestamp_ms, partition, _NULL if key is None else len(key),
        _NULL if value is None else len(value), len(topic), len(headers), checksum is not None,
    )  # fmt: skip
    if not headers and checksum is None:  # the usual case
        return b"".join((fixed, topic, key or b"", value or b""))
    parts = [fixed, topic, key or b"", value or b""]
    for header_name, header_value in headers:
        parts += _chunk(header_name.encode())
        parts += (_LENGTH.pack(_NULL),) if header_value is None else _chunk(header_value)
    if checksum is not None:
        parts += _chunk(checksum.encode())
    return b"".join(parts)


def sequence(data: bytes | memoryview) -> int:
    """Return the sequence of an encoded record without decoding the rest."""
    return int(_FIXED.unpack_from(data)[0])


def topic_and_time(data: bytes) -> tuple[str, float]:
    """Return an encoded record's topic and the earliest timestamp it can have there, in seconds since 1970."""
    _, accepted_at, timestamp, _, _, _, topic_length, _, _ = _FIXED.unpack_from(data)
    topic = data[_FIXED.size : _FIXED.size + topic_length].decode()
    return topic, min(accepted_at, timestamp / 1000) if timestamp > 0 else accepted_at


def decode(data: bytes) -> JournalRecord:
    seq, accepted_at, timestamp, partition, key, value, topic_length, headers, has_checksum = (
        _FIXED.unpack_from(data)
    )
    reader = _ByteReader(data, _FIXED.size)
    topic = (reader.take(topic_length) or b"").decode()
    return JournalRecord(
        seq, topic, reader.take(key), reader.take(value),
        tuple(((reader.chunk() or b"").decode(), reader.chunk()) for _ in range(headers)),
        Placement(partition, timestamp) if partition >= 0 or timestamp else ANYWHERE, accepted_at,
        (reader.chunk() or b"").decode() if has_checksum else None,
    )  # fmt: skip


def _chunk(data: bytes) -> tuple[bytes, bytes]:
    return _LENGTH.pack(len(data)), data


class _ByteReader:
    """Read encoded bytes from a current offset."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def take(self, length: int) -> bytes | None:
        if length == _NULL:
            return None
        start, self._offset = self._offset, self._offset + length
        return self._data[start : self._offset]

    def chunk(self) -> bytes | None:
        (length,) = _LENGTH.unpack_from(self._data, self._offset)
        self._offset += _LENGTH.size
        return self.take(length)

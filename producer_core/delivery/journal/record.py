"""A record: one message as the journal writes it down."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from producer_core.messages import ANYWHERE, Placement

if TYPE_CHECKING:
    from producer_core.delivery.delivery import Delivery

_FIXED = struct.Struct(">QdqiiiHIB")
"""Sequence, accepted at, timestamp, partition, length of key, of value, of topic, number of headers, has a claim."""
_pack = _FIXED.pack
_LENGTH = struct.Struct(">i")
_NULL = -1
"""The length of what is None."""


class JournalRecord(NamedTuple):
    """What is needed to send a message again under its own id, byte for byte.

    `headers` are the user's, without the id's; `placement` is what the caller asked for; `accepted_at` is in seconds
    since 1970; `checksum` is its claim's, when it has one.
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
    """Of a delivery, which has the same under the same names, its record: to make one first takes as long again."""
    name, key, value, headers, checksum, placement = (
        record.topic.encode(), record.key, record.value, record.headers, record.checksum, record.placement
    )  # fmt: skip
    fixed = _pack(
        record.seq, record.accepted_at, placement.timestamp_ms, placement.partition, _NULL if key is None else len(key),
        _NULL if value is None else len(value), len(name), len(headers), checksum is not None,
    )  # fmt: skip
    parts = [fixed, name, key or b"", value or b""]
    for title, content in headers:
        parts += _chunk(title.encode())
        parts += (_LENGTH.pack(_NULL),) if content is None else _chunk(content)
    if checksum is not None:
        parts += _chunk(checksum.encode())
    return b"".join(parts)


def sequence(data: bytes | memoryview) -> int:
    """The sequence of an encoded record, without decoding the rest."""
    return int(_FIXED.unpack_from(data)[0])


def origin(data: bytes) -> tuple[str, float]:
    """Return the topic of an encoded record, and the earliest time that it may carry there, in seconds since 1970."""
    _, accepted_at, timestamp, _, _, _, name, _, _ = _FIXED.unpack_from(data)
    topic = data[_FIXED.size : _FIXED.size + name].decode()
    return topic, min(accepted_at, timestamp / 1000) if timestamp > 0 else accepted_at


def decode(data: bytes) -> JournalRecord:
    seq, accepted_at, timestamp, partition, key, value, name, headers, claimed = _FIXED.unpack_from(data)
    reader = _ByteReader(data, _FIXED.size)
    topic = (reader.take(name) or b"").decode()
    return JournalRecord(
        seq, topic, reader.take(key), reader.take(value),
        tuple(((reader.chunk() or b"").decode(), reader.chunk()) for _ in range(headers)),
        Placement(partition, timestamp) if partition >= 0 or timestamp else ANYWHERE, accepted_at,
        (reader.chunk() or b"").decode() if claimed else None,
    )  # fmt: skip


def _chunk(data: bytes) -> tuple[bytes, bytes]:
    return _LENGTH.pack(len(data)), data


class _ByteReader:
    """A position in encoded bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, length: int) -> bytes | None:
        if length == _NULL:
            return None
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]

    def chunk(self) -> bytes | None:
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        return self.take(length)

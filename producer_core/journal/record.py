"""A record: one message as the journal writes it down."""

from __future__ import annotations

import struct
from typing import NamedTuple

_FIXED = struct.Struct(">QdqiBHI")
"""Sequence, accepted at, timestamp, partition, flags, length of the topic, number of headers."""
_LENGTH = struct.Struct(">I")
_NULL = 0xFFFFFFFF
_KEY, _VALUE, _CHECKSUM = 1, 2, 4


class Record(NamedTuple):
    """What is needed to send a message again under its own id, byte for byte.

    `headers` are the user's, without the id's; `partition` -1 and `timestamp_ms` 0 mean that none was asked for;
    `accepted_at` is in seconds since 1970; `checksum` and `dedup_topic` are its claim's, when it has one.
    """

    seq: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = -1
    timestamp_ms: int = 0
    accepted_at: float = 0.0
    checksum: str | None = None
    dedup_topic: str = ""


def encode(record: Record) -> bytes:
    seq, topic, key, value, headers, partition, timestamp, accepted_at, checksum, dedup_topic = record
    name = topic.encode()
    flags = (key is not None) * _KEY | (value is not None) * _VALUE | (checksum is not None) * _CHECKSUM
    parts = [
        _FIXED.pack(seq, accepted_at, timestamp, partition, flags, len(name), len(headers)),
        name,
        _LENGTH.pack(len(key or b"")),
        key or b"",
        _LENGTH.pack(len(value or b"")),
        value or b"",
    ]
    for header, content in headers:
        title = header.encode()
        parts += (_LENGTH.pack(len(title)), title)
        parts += (_LENGTH.pack(_NULL),) if content is None else (_LENGTH.pack(len(content)), content)
    if checksum is not None:
        for text in (checksum.encode(), dedup_topic.encode()):
            parts += (_LENGTH.pack(len(text)), text)
    return b"".join(parts)


def sequence(data: bytes | memoryview) -> int:
    """The sequence of an encoded record, without decoding the rest."""
    return int(_FIXED.unpack_from(data)[0])


def decode(data: bytes) -> Record:
    seq, accepted_at, timestamp, partition, flags, name_length, count = _FIXED.unpack_from(data)
    reader = _Reader(data, _FIXED.size)
    topic = reader.take(name_length).decode()
    key, value = reader.chunk() or b"", reader.chunk() or b""
    headers = tuple(((reader.chunk() or b"").decode(), reader.chunk()) for _ in range(count))
    checksum, dedup_topic = None, topic
    if flags & _CHECKSUM:
        checksum, dedup_topic = (reader.chunk() or b"").decode(), (reader.chunk() or b"").decode()
    return Record(
        seq, topic, key if flags & _KEY else None, value if flags & _VALUE else None, headers,
        partition, timestamp, accepted_at, checksum, dedup_topic,
    )  # fmt: skip


class _Reader:
    """A position in encoded bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]

    def chunk(self) -> bytes | None:
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        return None if length == _NULL else self.take(length)

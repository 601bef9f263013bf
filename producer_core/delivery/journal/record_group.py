"""Store several records in one frame, so that one checksum serves them all.

A group starts with a byte that no single record starts with, because sequences are lower than 2^63. The number of records
and their lengths follow, and then the records. Damage to any byte of a frame loses all of its records, so a group is small.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

MAX_RECORDS = 32
"""Records of a group. More of them save little: the checksum then costs less than the record's encoding."""
_MAX_BYTES = 1 << 16
"""The size at which a group is complete. A larger record has a frame of its own."""
_MARK = 0xFF
_MARK_BYTE = b"\xff"
_COUNT = struct.Struct(">BI")


def group(contents: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the contents of the frames for these encoded records, in order."""
    if len(contents) <= MAX_RECORDS and sum(map(len, contents)) <= _MAX_BYTES:  # the usual case
        yield _encode(contents)
        return
    chosen: list[bytes] = []
    size = 0
    for content in contents:
        if chosen and (len(chosen) == MAX_RECORDS or size + len(content) > _MAX_BYTES):
            yield _encode(chosen)
            chosen, size = [], 0
        chosen.append(content)
        size += len(content)
    if chosen:
        yield _encode(chosen)


def is_group(content: bytes) -> bool:
    return content.startswith(_MARK_BYTE)


def records(content: bytes) -> Iterable[bytes]:
    """Return the encoded records of a frame's content."""
    return _split(content) if content.startswith(_MARK_BYTE) else (content,)


def _encode(contents: Sequence[bytes]) -> bytes:
    count = len(contents)
    if count == 1:
        return contents[0]
    return struct.pack(f">BI{count}I", _MARK, count, *map(len, contents)) + b"".join(contents)


def _split(content: bytes) -> Iterator[bytes]:
    _, count = _COUNT.unpack_from(content)
    lengths = struct.unpack_from(f">{count}I", content, _COUNT.size)
    start = _COUNT.size + 4 * count
    for length in lengths:
        yield content[start : start + length]
        start += length

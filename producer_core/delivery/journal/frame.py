"""Frame records in a file: each frame states its length and proves that it is complete.

A header with magic bytes, length and CRC32C (Castagnoli) precedes the content. The checksum starts from a secret of the
file and covers the length and the offset in the file. Bytes inside a message can therefore never pass for a frame,
even when a message contains a copy of another journal or of this one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import google_crc32c

MAGIC = b"\xc5JR1"
_HEADER = struct.Struct(">4sII")
HEADER_SIZE = _HEADER.size
_WINDOW_BYTES = 1 << 18
_SECTOR_BYTES = 512
"""The least that a disk writes: a power failure leaves each sector old or new."""
OFFSET_MULTIPLIER = 0x9E3779B1
"""An odd number, so that neighboring offsets start their checksums far apart."""

extend: Callable[[int, bytes], int] = google_crc32c.extend
pack = _HEADER.pack


class JournalFrame(NamedTuple):
    """A complete frame: its offsets in the file and its content."""

    start: int
    end: int
    content: bytes


class FrameDamage(NamedTuple):
    """Bytes that are not a frame. `last` is true when no complete frame follows them."""

    start: int
    end: int
    last: bool


def seed(secret: int, name: str) -> int:
    """Return the start value for the checksums of one file."""
    return extend(secret, name.encode())


def start_value(seed: int, offset: int) -> int:
    """Return the start value for the checksum of a frame at this offset, without its length. MappedEnd inlines it."""
    return seed + offset * OFFSET_MULTIPLIER


def frame(content: bytes, seed: int, offset: int) -> bytes:
    """Return the frame of this content for this offset of the file."""
    return pack(MAGIC, len(content), _checksum(content, seed, offset)) + content


def frames(data: bytes, seed: int, base: int = 0) -> Iterator[JournalFrame | FrameDamage]:
    """Yield the frames of a file's bytes in order, and the damage between them. The bytes start at offset `base`."""
    offset, end = 0, len(data)
    while offset < end:
        found = _frame_at(data, offset, seed, base)
        if found is None:
            found = _next_frame(data, offset + 1, seed, base)
            yield FrameDamage(base + offset, base + end if found is None else found.start, found is None)
            if found is None:
                return
        yield found
        offset = found.end - base


def scan(file: int, offset: int, end: int, seed: int) -> Iterator[JournalFrame]:
    """Yield the complete frames of an open file between two offsets. Reads one window at a time."""
    size = _WINDOW_BYTES
    while offset < end:
        data = os.pread(file, min(size, end - offset), offset)
        if not data:
            return
        window_start, complete = offset, offset + len(data) >= end
        for found in frames(data, seed, offset):
            if isinstance(found, JournalFrame):
                yield found
            elif found.last and not complete:
                break  # the frame continues beyond the window
            offset = found.end
        size = _WINDOW_BYTES if offset > window_start else size * 2


def is_torn(data: bytes, start: int = 0) -> bool:
    """Return whether the last bytes of a file, from this offset on, look like an interrupted write.

    An interrupted write is too short, or zeros take the place of its first or last sector, or of its checksum. Other
    bytes were changed.
    """
    if len(data.rstrip(b"\0")) < HEADER_SIZE or data.startswith(bytes(HEADER_SIZE)):
        return True
    magic, length, checksum = _HEADER.unpack_from(data)
    last_sector = data[-((start + len(data) - 1) % _SECTOR_BYTES + 1) :]
    incomplete = HEADER_SIZE + length > len(data) or not checksum or not last_sector.strip(b"\0")
    return bool(magic == MAGIC and incomplete)


def without_free_space(data: bytes) -> bytes:
    """Return the damaged bytes at the end of a file without the zeros of its preallocated space.

    Zeros below the end that the frame states are kept: they are content or missing bytes.
    """
    stripped = data.rstrip(b"\0")
    if len(stripped) < HEADER_SIZE:
        return stripped
    magic, length, _ = _HEADER.unpack_from(stripped)
    return data[: max(len(stripped), HEADER_SIZE + length)] if magic == MAGIC else stripped


def _frame_at(data: bytes, offset: int, seed: int, base: int) -> JournalFrame | None:
    start = offset + HEADER_SIZE
    if start > len(data):
        return None
    magic, length, checksum = _HEADER.unpack_from(data, offset)
    if magic != MAGIC or start + length > len(data):
        return None
    content = data[start : start + length]
    if _checksum(content, seed, base + offset) != checksum:
        return None
    return JournalFrame(base + offset, base + start + length, content)


def _next_frame(data: bytes, offset: int, seed: int, base: int) -> JournalFrame | None:
    while (offset := data.find(MAGIC, offset)) >= 0:
        if (found := _frame_at(data, offset, seed, base)) is not None:
            return found
        offset += 1
    return None


def _checksum(content: bytes, seed: int, offset: int) -> int:
    return extend((start_value(seed, offset) + len(content)) & 0xFFFFFFFF, content)

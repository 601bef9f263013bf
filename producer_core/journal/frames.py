"""A frame: a piece of a file that says its length and proves that it is whole.

Magic, length and CRC32C (Castagnoli) stand before the content. The checksum starts from a secret of the journal
and covers the length, so that bytes inside a message can never be taken for a frame, not even a copied journal's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

import google_crc32c

MAGIC = b"\xc5JR1"
_HEAD = struct.Struct(">4sII")
_LENGTH = struct.Struct(">I")
HEAD = _HEAD.size


class Frame(NamedTuple):
    """Where a whole frame stands, and its content."""

    start: int
    end: int
    content: bytes


class Damage(NamedTuple):
    """Bytes that are no frame. `torn`: nothing whole comes after them, as after a crash in the middle of a write."""

    start: int
    end: int
    torn: bool


def frame(content: bytes, secret: int) -> bytes:
    length = len(content)
    return _HEAD.pack(MAGIC, length, _checksum(content, length, secret)) + content


def frames(data: bytes | mmap, secret: int, at: int = 0) -> Iterator[Frame | Damage]:
    """The frames of a file from a place on, in their order, and what is between them."""
    while at < len(data):
        found = _frame_at(data, at, secret)
        if found is None:
            following = _next_frame(data, at + 1, secret)
            yield Damage(at, len(data) if following is None else following.start, following is None)
            if following is None:
                return
            found = following
        yield found
        at = found.end


def _frame_at(data: bytes | mmap, at: int, secret: int) -> Frame | None:
    start = at + HEAD
    if start > len(data):
        return None
    magic, length, checksum = _HEAD.unpack_from(data, at)
    if magic != MAGIC or start + length > len(data):
        return None
    content = data[start : start + length]
    if _checksum(content, length, secret) != checksum:
        return None
    return Frame(at, start + length, content)


def _next_frame(data: bytes | mmap, at: int, secret: int) -> Frame | None:
    while (at := data.find(MAGIC, at)) >= 0:
        if (found := _frame_at(data, at, secret)) is not None:
            return found
        at += 1
    return None


def _checksum(content: bytes, length: int, secret: int) -> int:
    start = google_crc32c.extend(secret, _LENGTH.pack(length))
    return int(google_crc32c.extend(start, content))

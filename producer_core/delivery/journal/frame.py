"""A frame: a piece of a file that says its length and proves that it is whole.

Magic, length and CRC32C (Castagnoli) stand before the content. The checksum starts from a secret of the file and
covers the length and the place in the file, so that bytes inside a message can never be taken for a frame: not a
copied journal's, and not this journal's own, sent along as a message.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import google_crc32c

MAGIC = b"\xc5JR1"
_HEAD = struct.Struct(">4sII")
HEAD = _HEAD.size
_WINDOW = 1 << 18
_SPREAD = 0x9E3779B1
"""Odd, so that neighbouring places start their checksums far from each other."""

_extend: Callable[[int, bytes], int] = google_crc32c.extend
_pack = _HEAD.pack


class JournalFrame(NamedTuple):
    """Where a whole frame stands, and its content."""

    start: int
    end: int
    content: bytes


class FrameDamage(NamedTuple):
    """Bytes that are no frame. `last`: nothing whole comes after them."""

    start: int
    end: int
    last: bool


def seed(secret: int, name: str) -> int:
    """What the checksums of one file start from."""
    return _extend(secret, name.encode())


def frame(content: bytes, seed: int, at: int) -> bytes:
    """The content as it stands at this place of the file."""
    return _pack(MAGIC, len(content), _checksum(content, seed, at)) + content


def frames(data: bytes, seed: int, base: int = 0) -> Iterator[JournalFrame | FrameDamage]:
    """The frames of a file's bytes, which begin at `base` in it, in their order, and what is between them."""
    at, end = 0, len(data)
    while at < end:
        found = _frame_at(data, at, seed, base)
        if found is None:
            found = _next_frame(data, at + 1, seed, base)
            yield FrameDamage(base + at, base + end if found is None else found.start, found is None)
            if found is None:
                return
        yield found
        at = found.end - base


def scan(file: int, at: int, end: int, seed: int) -> Iterator[JournalFrame]:
    """The whole frames of an open file from one place to another, a window at a time."""
    size = _WINDOW
    while at < end:
        data = os.pread(file, min(size, end - at), at)
        if not data:
            return
        began, complete = at, at + len(data) >= end
        for found in frames(data, seed, at):
            if isinstance(found, JournalFrame):
                yield found
            elif found.last and not complete:
                break  # it goes on beyond the window
            at = found.end
        size = _WINDOW if at > began else size * 2


def torn(data: bytes) -> bool:
    """Whether the last bytes of a file look like a write that did not end, and not like changed ones."""
    if len(data) < HEAD or not data.rstrip(b"\0"):
        return True
    magic, length, _ = _HEAD.unpack_from(data)
    return bool(magic == MAGIC and (HEAD + length > len(data) or data.endswith(bytes(512))))


def _frame_at(data: bytes, at: int, seed: int, base: int) -> JournalFrame | None:
    start = at + HEAD
    if start > len(data):
        return None
    magic, length, checksum = _HEAD.unpack_from(data, at)
    if magic != MAGIC or start + length > len(data):
        return None
    content = data[start : start + length]
    if _checksum(content, seed, base + at) != checksum:
        return None
    return JournalFrame(base + at, base + start + length, content)


def _next_frame(data: bytes, at: int, seed: int, base: int) -> JournalFrame | None:
    while (at := data.find(MAGIC, at)) >= 0:
        if (found := _frame_at(data, at, seed, base)) is not None:
            return found
        at += 1
    return None


def _checksum(content: bytes, seed: int, at: int) -> int:
    return _extend((seed + at * _SPREAD + len(content)) & 0xFFFFFFFF, content)

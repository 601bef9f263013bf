"""The settle log: what is done, appended in whole steps, and shortened when it has grown."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from producer_core.journal.folder import Folder
from producer_core.journal.frames import Frame, frame, frames

_NAME = "settled"
_SHORTEN = 4 << 20
"""Bytes from which on the log is written anew, as one step."""
_COUNTS = struct.Struct(">II")
_RANGE = struct.Struct(">QQ")
_OFFSET = struct.Struct(">iqH")

Offsets = Mapping[tuple[str, int], int]


class Step(NamedTuple):
    """Ranges of sequences that are done, and offsets by topic and partition that hold with it."""

    ranges: list[tuple[int, int]]
    offsets: Offsets


class SettleLog:
    """Guarded by the journal's lock. A torn end counts as not written."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._path = folder.path / _NAME
        self._secret = folder.identity.secret
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = 0

    def steps(self) -> Iterator[Step]:
        """What was written, in order; what is torn or damaged is cut off from there on: a lost mark is made again."""
        for found in frames(self._path.read_bytes(), self._secret):
            if not isinstance(found, Frame):
                break
            self._size = found.end
            yield _decode(found.content)
        os.ftruncate(self._file, self._size)

    def append(self, step: Step, *, sync: bool) -> None:
        """Write one step. OSError leaves the log as it was."""
        data = frame(_encode(step), self._secret)
        try:
            written = os.pwrite(self._file, data, self._size)
            if written < len(data):
                raise OSError(28, "no space left for the whole step")
            if sync:
                os.fdatasync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    @property
    def long(self) -> bool:
        return self._size > _SHORTEN

    def rewrite(self, step: Step) -> None:
        """Replace the whole log by one step that says the same. OSError leaves the old one."""
        data = frame(_encode(step), self._secret)
        self._folder.replace(_NAME, data)
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._size = len(data)

    def close(self) -> None:
        os.close(self._file)


def _encode(step: Step) -> bytes:
    parts = [_COUNTS.pack(len(step.ranges), len(step.offsets))]
    parts += (_RANGE.pack(start, end) for start, end in step.ranges)
    for (topic, partition), offset in step.offsets.items():
        name = topic.encode()
        parts += (_OFFSET.pack(partition, offset, len(name)), name)
    return b"".join(parts)


def _decode(content: bytes) -> Step:
    ranges, offsets = _COUNTS.unpack_from(content)
    at = _COUNTS.size
    found = [_RANGE.unpack_from(content, at + _RANGE.size * number) for number in range(ranges)]
    at += _RANGE.size * ranges
    places: dict[tuple[str, int], int] = {}
    for _ in range(offsets):
        partition, offset, length = _OFFSET.unpack_from(content, at)
        at += _OFFSET.size + length
        places[content[at - length : at].decode(), partition] = offset
    return Step([(int(start), int(end)) for start, end in found], places)


def merged(offsets: Iterable[Offsets]) -> dict[tuple[str, int], int]:
    """The last word on each partition."""
    return {place: offset for step in offsets for place, offset in step.items()}

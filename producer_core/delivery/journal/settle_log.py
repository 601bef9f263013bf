"""The settle log: what is done, appended in whole steps, and shortened when it has grown."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from producer_core.delivery.journal.file_writes import replace, write_whole
from producer_core.delivery.journal.folder import JournalFolder
from producer_core.delivery.journal.frame import FrameDamage, JournalFrame, frame, frames

_NAME = "settled"
_SHORTEN = 1 << 20
"""Bytes from which on the log is written anew, as one step."""
_AHEAD = (2 << 20, 1 << 18, 1 << 16)
"""Room taken from the disk in advance: marks must find room on a full disk, because they are what empties it."""
_HEAD = struct.Struct(">BII")
_RANGE = struct.Struct(">QQ")
_OFFSET = struct.Struct(">iqH")
_WHOLE = 1

Offsets = Mapping[tuple[str, int], int]


class SettleStep(NamedTuple):
    """Ranges of sequences that are done, and offsets by topic and partition that hold with it.

    A `whole` step says everything that steps before it said.
    """

    ranges: list[tuple[int, int]]
    offsets: Offsets
    whole: bool = False


class SettleLog:
    """Guarded by the journal's lock. A torn end counts as not written."""

    def __init__(self, folder: JournalFolder) -> None:
        self._path = folder.path / _NAME
        self._seed = folder.seed(_NAME)
        self.is_new = not self._path.exists()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = 0
        self._room = 0
        self._shorten_at = _SHORTEN
        if self.is_new:
            folder.sync()

    def steps(
        self, damaged: Callable[[Path, FrameDamage, bytes], bool], begun: Iterable[tuple[str, int]] = ()
    ) -> Iterator[SettleStep]:
        """What was written, in order, up to the first damage that no whole step makes up for.

        What came after the damage is not used: an offset is true only with all marks before it. It is cut off, and
        a last step sends the partitions that it named back to their beginning, unless an earlier step knows them or
        they are among the `begun` ones.
        """
        data = self._path.read_bytes()
        known = set(begun)
        behind: set[tuple[str, int]] = set()
        damage: FrameDamage | None = None
        for found in frames(data, self._seed):
            if isinstance(found, JournalFrame):
                step = decode(found.content)
                if damage is None or step.whole:
                    damage, behind = None, set()
                    known |= set(step.offsets)
                    self._size = found.end
                    yield step
                else:
                    behind |= set(step.offsets)
            elif damage is None and not (found.last and _is_room(data, found)):
                damage = found
        if damage is not None:
            end = max(len(data.rstrip(b"\0")), damage.start)
            damaged(self._path, damage._replace(end=end), data[damage.start : end])
        os.ftruncate(self._file, self._size)
        self._take_room()
        if behind - known:
            yield SettleStep([], dict.fromkeys(behind - known, -1))

    def append(self, step: SettleStep, *, sync: bool) -> None:
        """Write one step. OSError leaves the log as it was."""
        data = frame(encode(step), self._seed, self._size)
        if self._size + len(data) > self._room:
            self._take_room()
        try:
            write_whole(self._file, data, self._size)
            if sync:
                os.fdatasync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            self._room = 0
            raise
        self._size += len(data)

    @property
    def long(self) -> bool:
        return self._size > self._shorten_at

    def rewrite(self, step: SettleStep) -> None:
        """Replace the whole log by one step that says the same, twice. OSError leaves the old one."""
        self._shorten_at = self._size + _SHORTEN  # on failure: not at every step
        content = encode(step)
        data = frame(content, self._seed, 0)
        data += frame(content, self._seed, len(data))
        replace(self._path, data)
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        os.close(self._file)
        self._file = file
        self._size = len(data)
        self._shorten_at = max(_SHORTEN, 2 * self._size)
        self._take_room()

    def close(self) -> None:
        os.close(self._file)

    def _take_room(self) -> None:
        for ahead in _AHEAD:
            with contextlib.suppress(OSError):  # none to be had: then each step takes its own
                os.posix_fallocate(self._file, self._size, ahead)
                self._room = self._size + ahead
                return


def _is_room(data: bytes, found: FrameDamage) -> bool:
    """Return whether these bytes are room that was taken in advance.

    Before a whole step, zeros are a step that a power failure took although a later one was written.
    """
    return not data[found.start : found.end].rstrip(b"\0")


def encode(step: SettleStep) -> bytes:
    parts = [_HEAD.pack(step.whole * _WHOLE, len(step.ranges), len(step.offsets))]
    parts += (_RANGE.pack(start, end) for start, end in step.ranges)
    for (topic, partition), offset in step.offsets.items():
        name = topic.encode()
        parts += (_OFFSET.pack(partition, offset, len(name)), name)
    return b"".join(parts)


def decode(content: bytes) -> SettleStep:
    flags, ranges, offsets = _HEAD.unpack_from(content)
    at = _HEAD.size
    found = [_RANGE.unpack_from(content, at + _RANGE.size * number) for number in range(ranges)]
    at += _RANGE.size * ranges
    places: dict[tuple[str, int], int] = {}
    for _ in range(offsets):
        partition, offset, length = _OFFSET.unpack_from(content, at)
        at += _OFFSET.size + length
        places[content[at - length : at].decode(), partition] = offset
    return SettleStep([(int(start), int(end)) for start, end in found], places, bool(flags & _WHOLE))

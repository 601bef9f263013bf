"""The settle log: a log of settled sequences, appended in atomic steps and rewritten when it is long."""

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
_REWRITE_BYTES = 1 << 20
"""Size above which the log is rewritten as one step."""
_PREALLOCATE_BYTES = (2 << 20, 1 << 18, 1 << 16)
"""Disk space reserved ahead of time. Settling must find room on a full disk, because it is what frees the disk."""
_HEADER = struct.Struct(">BII")
_RANGE = struct.Struct(">QQ")
_OFFSET = struct.Struct(">iqH")
_COMPLETE = 1

Offsets = Mapping[tuple[str, int], int]


class SettleStep(NamedTuple):
    """Ranges of settled sequences, and the offsets by topic and partition that are valid with them.

    A `complete` step includes everything in the steps before it.
    """

    ranges: list[tuple[int, int]]
    offsets: Offsets
    complete: bool = False


class SettleLog:
    """Append and read settle steps. A torn end counts as not written. Guarded by the journal's lock."""

    def __init__(self, folder: JournalFolder) -> None:
        self._path = folder.path / _NAME
        self._seed = folder.seed(_NAME)
        self.is_new = not self._path.exists()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = 0
        self._allocated_end = 0
        self._rewrite_at = _REWRITE_BYTES
        if self.is_new:
            folder.sync()

    def steps(
        self, on_damage: Callable[[Path, FrameDamage, bytes], bool], started: Iterable[tuple[str, int]] = ()
    ) -> Iterator[SettleStep]:
        """Yield the steps in order, up to the first damage that no complete step follows.

        Steps after the damage are cut off and not used, because an offset is valid only with all settled ranges before
        it. A last step then resets the partitions that they name to the beginning, except those in an earlier step or
        in `started`.
        """
        data = self._path.read_bytes()
        known = set(started)
        after_damage: set[tuple[str, int]] = set()
        damage: FrameDamage | None = None
        for found in frames(data, self._seed):
            if isinstance(found, JournalFrame):
                step = decode(found.content)
                if damage is None or step.complete:
                    damage, after_damage = None, set()
                    known |= set(step.offsets)
                    self._size = found.end
                    yield step
                else:
                    after_damage |= set(step.offsets)
            elif damage is None and not (found.last and _is_preallocated(data, found)):
                damage = found
        if damage is not None:
            end = max(len(data.rstrip(b"\0")), damage.start)
            on_damage(self._path, damage._replace(end=end), data[damage.start : end])
        os.ftruncate(self._file, self._size)
        self._preallocate()
        if after_damage - known:
            yield SettleStep([], dict.fromkeys(after_damage - known, -1))

    def append(self, step: SettleStep, *, sync: bool) -> None:
        """Write one step. OSError leaves the log unchanged."""
        data = frame(encode(step), self._seed, self._size)
        if self._size + len(data) > self._allocated_end:
            self._preallocate()
        try:
            write_whole(self._file, data, self._size)
            if sync:
                os.fdatasync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            self._allocated_end = 0
            raise
        self._size += len(data)

    @property
    def needs_rewrite(self) -> bool:
        return self._size > self._rewrite_at

    def rewrite(self, step: SettleStep) -> None:
        """Replace the log by this equivalent step, written twice. OSError leaves the old log in place."""
        self._rewrite_at = self._size + _REWRITE_BYTES  # after a failure, do not retry at every step
        content = encode(step)
        data = frame(content, self._seed, 0)
        data += frame(content, self._seed, len(data))
        replace(self._path, data)
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        os.close(self._file)
        self._file = file
        self._size = len(data)
        self._rewrite_at = max(_REWRITE_BYTES, 2 * self._size)
        self._preallocate()

    def close(self) -> None:
        os.close(self._file)

    def _preallocate(self) -> None:
        for ahead in _PREALLOCATE_BYTES:
            with contextlib.suppress(OSError):  # without preallocation, each step allocates its own space
                os.posix_fallocate(self._file, self._size, ahead)
                self._allocated_end = self._size + ahead
                return


def _is_preallocated(data: bytes, found: FrameDamage) -> bool:
    """Return whether these bytes are preallocated space.

    Zeros before another step are not: they are a step that a power failure lost although a later one was written.
    """
    return not data[found.start : found.end].rstrip(b"\0")


def encode(step: SettleStep) -> bytes:
    parts = [_HEADER.pack(step.complete * _COMPLETE, len(step.ranges), len(step.offsets))]
    parts += (_RANGE.pack(start, end) for start, end in step.ranges)
    for (topic, partition), offset in step.offsets.items():
        name = topic.encode()
        parts += (_OFFSET.pack(partition, offset, len(name)), name)
    return b"".join(parts)


def decode(content: bytes) -> SettleStep:
    flags, ranges, offsets = _HEADER.unpack_from(content)
    position = _HEADER.size
    found = [_RANGE.unpack_from(content, position + _RANGE.size * number) for number in range(ranges)]
    position += _RANGE.size * ranges
    by_partition: dict[tuple[str, int], int] = {}
    for _ in range(offsets):
        partition, offset, length = _OFFSET.unpack_from(content, position)
        position += _OFFSET.size + length
        by_partition[content[position - length : position].decode(), partition] = offset
    return SettleStep([(int(start), int(end)) for start, end in found], by_partition, bool(flags & _COMPLETE))

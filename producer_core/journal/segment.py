"""A segment: one file of records, written at its end and deleted when all of them are settled."""

from __future__ import annotations

import contextlib
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from producer_core.journal.frames import Damage, Frame, frames
from producer_core.journal.ranges import Ranges
from producer_core.journal.record import sequence

_STEP = 1 << 18
"""Bytes between two entries of the index that a reader starts from."""


class Segment:
    """Guarded by the journal's lock, but for `read`, which has a handle of its own."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        self._file: int | None = os.open(path, flags, 0o600)
        self.size = 0
        self.sequences = Ranges()
        self.settled = Ranges()
        self._index: list[tuple[int, int]] = []  # highest sequence so far, offset: both rise

    @property
    def unsettled(self) -> int:
        return len(self.sequences) - len(self.settled)

    def add(self, data: bytes, seq: int) -> None:
        """Write one frame at the end. OSError leaves the file as it was."""
        assert self._file is not None, "an open segment"
        try:
            _write(self._file, data, self.size)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self._know(seq, self.size)
        self.size += len(data)

    def sync(self) -> None:
        """May run while another thread closes the segment: what is settled needs no disk."""
        file = self._file
        try:
            if file is not None:
                os.fdatasync(file)
        except OSError:
            if self._file is not None:
                raise

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def settle(self, start: int, end: int) -> int:
        """How many of these were in here and open."""
        return sum(self.settled.add(low, high) for low, high in self.sequences.overlap(start, end))

    def recover(self, secret: int, damaged: Callable[[Damage, bytes], None]) -> None:
        """Learn what the file holds; a torn end is cut off, damage in the middle is told and left where it is."""
        data = self.path.read_bytes()
        for found in frames(data, secret):
            if isinstance(found, Damage):
                damaged(found, data[found.start : found.end])
                if found.torn:
                    assert self._file is not None, "an open segment"
                    os.ftruncate(self._file, found.start)
                    return
                self.size = found.end
            else:
                self._know(sequence(found.content), found.start)
                self.size = found.end

    def read(self, after: int, secret: int) -> Iterator[tuple[int, bytes]]:
        """Sequence and content of each record above `after`, up to where the file is written when it gets there."""
        place = bisect_right(self._index, (after, 1 << 62)) - 1
        at = self._index[place][1] if place >= 0 else 0
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:  # gone: all settled
            while at < (end := self.size):
                with mmap.mmap(file.fileno(), end, prot=mmap.PROT_READ) as data:
                    for found in frames(data, secret, at):
                        at = found.end
                        if isinstance(found, Frame) and (seq := sequence(found.content)) > after:
                            yield seq, found.content

    def _know(self, seq: int, at: int) -> None:
        if not self._index or at - self._index[-1][1] >= _STEP:
            self._index.append((self.sequences.highest, at))
        self.sequences.add(seq, seq + 1)


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written

"""A segment: one file of records, written at its end and deleted when all of them are settled."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from producer_core.delivery.journal.file_writes import replace, write_whole
from producer_core.delivery.journal.frame import FrameDamage, frame, frames, scan
from producer_core.delivery.journal.ranges import Ranges
from producer_core.delivery.journal.record import sequence

_STEP = 1 << 18
"""Bytes between two entries of the index that a reader starts from."""


class Segment:
    """Guarded by the journal's lock, but for `sync` and `read`."""

    def __init__(self, path: Path, seed: int, *, create: bool = False) -> None:
        self.path = path
        self._seed = seed
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        self._file: int | None = os.open(path, flags, 0o600)
        self.size = 0
        self.sequences = Ranges()
        self.settled = Ranges()
        self.broken = False
        self._index: list[tuple[int, int]] = []  # highest sequence so far, offset: both rise
        self._next_mark = 0  # the offset from which on there is another

    @property
    def unsettled(self) -> int:
        return len(self.sequences) - len(self.settled)

    @property
    def number(self) -> int:
        return int(self.path.stem)

    @property
    def in_place(self) -> bool:
        """Whether the file still has its name."""
        return self._file is not None and os.fstat(self._file).st_nlink > 0

    def add(self, contents: Sequence[tuple[int, bytes]]) -> int:
        """Write records at the end in one go; how many bytes they take. OSError leaves the file as it was."""
        assert self._file is not None, "an open segment"
        start = at = self.size
        parts = []
        for _, content in contents:
            parts.append(data := frame(content, self._seed, at))
            at += len(data)
        try:
            write_whole(self._file, b"".join(parts), start)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            raise
        self.size = at
        if start >= self._next_mark:
            self._mark(start)
        for seq, _ in contents:
            self.sequences.add(seq, seq + 1)
        return at - start

    def settle(self, start: int, end: int) -> None:
        for low, high in self.sequences.overlap(start, end):
            self.settled.add(low, high)

    def sync(self) -> None:
        """May run while another thread closes the segment: what is settled needs no disk."""
        file = self._file
        try:
            if file is not None:
                os.fdatasync(file)
        except OSError:
            if self._file is not None:
                self.broken = True  # a second try would succeed and prove nothing
                raise

    def handle(self) -> int:
        """A handle for one reader, good also when the file is deleted meanwhile."""
        assert self._file is not None, "an open segment"
        return os.dup(self._file)

    def read(self, handle: int, after: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Sequence and content of each record above `after` between two places of the file."""
        place = bisect_right(self._index, (after, 1 << 62)) - 1
        start = max(start, self._index[place][1] if place >= 0 else 0)
        for found in scan(handle, start, end, self._seed):
            if (seq := sequence(found.content)) > after:
                yield seq, found.content

    def recover(self, damaged: Callable[[Path, FrameDamage, bytes], bool]) -> None:
        """Learn what the file holds. `damaged` says whether a damaged end may be cut off."""
        data = self.path.read_bytes()
        for found in frames(data, self._seed):
            if not isinstance(found, FrameDamage):
                self._know(sequence(found.content), found.start)
            elif damaged(self.path, found, data[found.start : found.end]) and found.last:
                assert self._file is not None, "an open segment"
                os.ftruncate(self._file, found.start)
                return
            self.size = found.end

    def without_settled(self) -> Segment:
        """The same file with only what is open, replaced in one step. OSError leaves this one."""
        handle = self.handle()
        try:
            kept = [
                (seq, content)
                for seq, content in self.read(handle, -1, 0, self.size)
                if seq not in self.settled
            ]
        finally:
            os.close(handle)
        at, parts = 0, []
        for _, content in kept:
            parts.append(frame(content, self._seed, at))
            at += len(parts[-1])
        replace(self.path, b"".join(parts))
        shorter = Segment(self.path, self._seed)
        for (seq, _), part in zip(kept, parts, strict=True):
            shorter._know(seq, shorter.size)
            shorter.size += len(part)
        return shorter

    def delete(self) -> None:
        """OSError when the file cannot be deleted; then it stays as it is."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _know(self, seq: int, at: int) -> None:
        if at >= self._next_mark:
            self._mark(at)
        self.sequences.add(seq, seq + 1)

    def _mark(self, at: int) -> None:
        """An entry of the index: what is not known yet begins there."""
        self._index.append((self.sequences.highest, at))
        self._next_mark = at + _STEP

"""Write single records to the preallocated end of a file through memory.

A system call costs more, and it releases the GIL: the thread that settles messages and the sending threads would wait for
each other at every message.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from producer_core.delivery.journal.frame import (
    HEADER_SIZE,
    MAGIC,
    OFFSET_MULTIPLIER,
    extend,
    pack,
    start_value,
)

_FILE_SYSTEMS = {b"ext4", b"tmpfs"}
"""File systems on which a write to preallocated space never needs other space. On a file system that copies or compresses
blocks, such as btrfs or XFS with reflinks, a full disk could end the process with SIGBUS at a write through memory."""
_PAGE_BYTES = mmap.ALLOCATIONGRANULARITY


class MappedEnd:
    """The memory of the end of a segment's file. Its disk space is allocated, and the file is not cut off while it is open.

    Guarded by the journal's lock. Signal handlers of the writing thread may write too, because the lock is reentrant.
    CPython runs them after calls and in loops: a few statements below must therefore not be separated by a call.
    """

    __slots__ = ("_end", "_memory", "_seed", "base", "first", "limit", "next", "position")

    def __init__(self, file: int, seed: int, size: int, end: int) -> None:
        self.base = size // _PAGE_BYTES * _PAGE_BYTES  # the offset in the file; all others are relative to it
        self._memory = mmap.mmap(file, end - self.base, offset=self.base)
        self._seed = start_value(seed, self.base)
        self.position = size - self.base
        self._end = end - self.base
        self.limit = -1
        # The sequences from `first` up to, but not including, `next` were written and are not in the segment's ranges yet.
        self.first = self.next = 0

    @property
    def size(self) -> int:
        """The size of the records in the file. The next record starts there."""
        return self.base + self.position

    @property
    def end(self) -> int:
        return self.base + self._end

    def allow(self, size: int) -> None:
        """Let records end at or below this size of the file, so that the segment and the journal check their own limits."""
        self.limit = min(size - self.base, self._end)

    def append(self, seq: int, content: bytes) -> bool:
        """Write one record. Return False if it ends above the limit or its sequence does not follow the last one.

        The header is written last, so that a killed process leaves zeros in its place.
        """
        length = len(content)
        while True:
            start = self.position
            body = start + HEADER_SIZE
            end = body + length
            if end > self.limit or seq != self.next:
                return False
            head = pack(
                MAGIC, length, extend((self._seed + start * OFFSET_MULTIPLIER + length) & 0xFFFFFFFF, content)
            )
            # No call from here on, so that no signal handler writes in between.
            if self.position == start and end <= self.limit and seq == self.next:
                memory = self._memory
                memory[body:end] = content
                memory[start:body] = head
                self.position = end
                self.next = seq + 1
                return True

    def close(self) -> None:
        self.limit = -1
        self._memory.close()


def can_map(folder: Path) -> bool:
    """Return whether the folder is on a file system whose files may be written through memory."""
    device = folder.stat().st_dev
    number = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_bytes().splitlines()]
    except OSError:  # not Linux
        return False
    return any(fields[2] == number and fields[fields.index(b"-") + 1] in _FILE_SYSTEMS for fields in mounts)

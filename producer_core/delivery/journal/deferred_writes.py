"""Hold the bytes of a file until its next sync, which writes them with one system call for all threads.

A system call per record would release the GIL: the threads would wait for each other at every record.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator

_JOINED_BYTES = 1 << 20
"""Parts are joined up to this size. A larger one is written without a copy."""


class DeferredWrites:
    """Parts of a file that are not written yet, in order, below the end of its allocated space.

    `append` is guarded by the journal's lock. `write` and `forget` belong to the syncing thread, which does not have the
    lock; a signal handler of that thread may sync as well, so a part is forgotten only after it was synced.
    """

    def __init__(self) -> None:
        self._parts: deque[tuple[int, bytes]] = deque()
        self._cancelled = False
        self.append = (
            self._parts.append
        )  # takes the offset and the bytes; one step, which no handler interrupts

    def __bool__(self) -> bool:
        return bool(self._parts)

    def write(self, file: int) -> int:
        """Write all parts, from the front: a killed process leaves no gap. Return the offset of their end."""
        end = 0
        for offset, data in _joined(list(self._parts)):
            end = self._write_part(file, offset, data)
        return end

    def forget(self, end: int) -> None:
        """Drop the parts below this offset, which were written and synced."""
        while self._parts and self._parts[0][0] < end:
            self._parts.popleft()

    def cancel(self) -> None:
        """Drop all parts. A `write` that a signal handler interrupted writes no more of them."""
        self._cancelled = True
        self._parts.clear()

    def _write_part(self, file: int, offset: int, data: bytes) -> int:
        left = memoryview(data)
        while left and not self._cancelled:  # no call between this check and the write
            count = os.pwrite(file, left, offset)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            offset += count
            left = left[count:]
        return offset


def _joined(parts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield the parts as few larger ones. Between two parts may be a record that was written at once."""
    start = size = 0
    chosen: list[bytes] = []
    for offset, data in parts:
        if chosen and (size + len(data) > _JOINED_BYTES or offset != start + size):
            yield start, b"".join(chosen)
            chosen, size = [], 0
        if not chosen:
            start = offset
        chosen.append(data)
        size += len(data)
    if chosen:
        yield start, b"".join(chosen)

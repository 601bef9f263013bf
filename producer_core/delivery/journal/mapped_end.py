"""Write to the preallocated end of a file through memory.

A system call costs more and releases the GIL, so the thread that settles messages and the sending threads would wait for
each other at every message.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_FILE_SYSTEMS = {b"ext4", b"tmpfs"}
"""File systems on which preallocated space is never copied or compressed. Elsewhere, a full disk could end the process
with SIGBUS at a write through memory."""
_PAGE_BYTES = mmap.ALLOCATIONGRANULARITY


class MappedEnd:
    """The memory of a part of a file. Its disk space must be allocated, and the file must not be cut off in it."""

    def __init__(self, file: int, start: int, end: int) -> None:
        self._offset = start // _PAGE_BYTES * _PAGE_BYTES
        self._memory = mmap.mmap(file, end - self._offset, offset=self._offset)
        self.end = end

    def write(self, header: bytes, content: bytes, start: int) -> None:
        """Write a record at this offset of the file, the header last: a killed process leaves zeros in its place."""
        first = start - self._offset
        body = first + len(header)
        self._memory[body : body + len(content)] = content
        self._memory[first:body] = header

    def close(self) -> None:
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

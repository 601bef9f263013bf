"""Write files completely or not at all, and replace small files atomically."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from producer_core._internal.private_files import sync_folder


class OpenFile:
    """A file handle that is closed when its last user drops it: no thread can use the number of a closed one."""

    __slots__ = ("number",)

    def __init__(self, path: Path, flags: int) -> None:
        self.number = -1
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


def write_whole(file: int, data: bytes, offset: int) -> None:
    """Write all bytes at the offset. Raise OSError when the disk has no room for all of them."""
    written = os.pwrite(file, data, offset)
    while written < len(data):  # after a short write, the second attempt raises the reason
        count = os.pwrite(file, memoryview(data)[written:], offset + written)
        if count == 0:
            raise OSError(28, os.strerror(28))
        written += count


def replace(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a crash, a full disk or a power failure it has its old or its new content."""
    new = path.with_name(f"{path.name}.new")
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_whole(file, data, 0)
            os.fsync(file)
        finally:
            os.close(file)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)

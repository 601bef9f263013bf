"""Whole writes: all of it or an error, and small files that are replaced in one step."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from producer_core._internal.private_files import sync_folder


def write_whole(file: int, data: bytes, at: int) -> None:
    """Write all of it; OSError when a part has no room."""
    written = os.pwrite(file, data, at)
    while written < len(data):  # a second write of the rest gives the reason
        more = os.pwrite(file, memoryview(data)[written:], at + written)
        if more == 0:
            raise OSError(28, os.strerror(28))
        written += more


def replace(path: Path, data: bytes) -> None:
    """Write a file so that a crash, a full disk or a power failure leaves the old one or the new one."""
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

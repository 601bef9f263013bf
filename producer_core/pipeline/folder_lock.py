"""Let one job at a time use a folder."""

from __future__ import annotations

import contextlib
from pathlib import Path

from producer_core._internal.file_lock import FileLock
from producer_core.errors import PipelineError


def lock_folder(file: Path, what: str) -> FileLock:
    """Lock `file` and write this process's id to it. Raise PipelineError when another job holds `what`."""
    lock, acquired = FileLock(file), False
    try:
        with contextlib.suppress(OSError):
            acquired = lock.try_acquire()
        if not acquired:
            holder = lock.read_pid()
            raise PipelineError(
                f"Another job is using {what}{f' (process {holder})' if holder else ''}.",
                fix="Wait until it finishes, or specify another folder.",
            )
        lock.write_pid()
    except BaseException:
        lock.release()
        raise
    return lock

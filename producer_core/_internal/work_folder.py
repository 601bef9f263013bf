"""Private folders for intermediate files. What a killed process leaves is deleted at the next start."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from producer_core._internal.file_lock import FileLock
from producer_core.errors import TransferError

PREFIX = ".producer-core-work-"
RESERVE = 256 << 20
"""Bytes that stay free for the producers that write to the same disk."""

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)  # Windows has none


class WorkFolder:
    """A folder with mode 0700 beside a file, or in the temporary folder if this user cannot write there.

    Its process holds a lock on it. `close`, or the end of the object, deletes it; a forked child leaves it to its parent.
    Raise OSError if no folder can be created.
    """

    def __init__(self, beside: Path | None = None) -> None:
        parent = _parent(beside)
        remove_leftovers(parent)
        self.path, lock = _create(parent)
        self._end = weakref.finalize(self, _delete, self.path, lock, os.getpid())

    def ensure_free(self, needed: int) -> None:
        """Raise TransferError unless the disk has room for this number of bytes, and RESERVE remains."""
        free = shutil.disk_usage(self.path).free
        if needed + RESERVE > free:
            raise TransferError(
                f"{self.path.parent} has {free:,} bytes free; {needed + RESERVE:,} are needed. No file was written.",
                fix="Free up disk space, or choose a shorter range.",
            )

    def close(self) -> None:
        """Delete the folder. Further calls have no effect."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove_leftovers(parent: Path) -> None:
    """Delete the folders of this user in `parent` whose processes have ended."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                _remove_if_unlocked(Path(entry.path))


def _remove_if_unlocked(path: Path) -> None:
    with contextlib.suppress(OSError), FileLock(path, flags=_DIRECTORY) as lock:
        if os.fstat(lock.descriptor).st_uid == os.getuid() and lock.try_acquire():
            shutil.rmtree(path, ignore_errors=True)


def _parent(beside: Path | None) -> Path:
    if beside is not None and beside.parent.is_dir() and os.access(beside.parent, os.W_OK | os.X_OK):
        return beside.parent
    return Path(tempfile.gettempdir())


def _create(parent: Path) -> tuple[Path, FileLock]:
    """Create a folder and lock it. Between the two, another process may take it for a leftover and delete it."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = FileLock(path, flags=_DIRECTORY)
        except FileNotFoundError:
            continue
        with contextlib.suppress(
            OSError
        ):  # not every file system has locks; there, no process deletes leftovers
            if not lock.try_acquire():
                lock.release()
                continue
        if lock.in_place:
            return path, lock
        lock.release()


def _delete(path: Path, lock: FileLock, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)
        lock.release()

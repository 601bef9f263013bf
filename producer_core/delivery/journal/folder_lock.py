"""The lock of a journal folder. Its file has the owner's process id; the kernel releases the lock when the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from pathlib import Path

from producer_core.errors import JournalLocked

_NAME = "lock"


class FolderLock:
    """Hold the folder's lock from construction to `release`.

    The lock (flock) belongs to the open file, not to the process. So a second owner in the same process is rejected
    too, and opening and closing the file elsewhere does not release the lock. A forked child closes its copy at once;
    otherwise it would keep the lock of a killed parent.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._file: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 20, 0).decode(errors="replace").strip()
            self.release()
            raise _locked_error(folder, owner) from None
        except BaseException:
            self.release()
            raise
        with contextlib.suppress(OSError):  # on a full disk the file names no owner
            os.pwrite(self._file, f"{os.getpid():<20}".encode(), 0)
        _held_locks.add(self)

    @property
    def in_place(self) -> bool:
        """Return whether the file still exists. Once it is deleted, another process can lock a new one."""
        try:
            return self._file is not None and os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _locked_error(folder: Path, owner: str) -> JournalLocked:
    if owner == str(os.getpid()):  # for example, a notebook cell that creates the producer ran twice
        return JournalLocked(
            f"The journal {folder} is open in this process already.",
            fix="Use the producer that has it, or close() that producer first.",
        )
    return JournalLocked(
        f"The journal {folder} is in use by process {owner or 'unknown'}.",
        fix="Stop that process, or set another journal_dir for this producer.",
    )


_held_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _release_in_child() -> None:
    for lock in list(_held_locks):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)

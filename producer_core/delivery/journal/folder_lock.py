"""The lock of a folder: one owner at a time, named by its process id, free as soon as that process is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from pathlib import Path

from producer_core.errors import JournalLocked

_NAME = "lock"


class FolderLock:
    """Held from its making to `release`.

    It belongs to the open file and not to the process (flock), so a second owner in the same process is refused as
    well, and nothing else that opens and closes the file frees it. A forked child lets its copy go at once, else it
    would keep a killed parent's lock.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._file: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 20, 0).decode(errors="replace").strip()
            self.release()
            raise _locked(folder, owner) from None
        except BaseException:
            self.release()
            raise
        with contextlib.suppress(OSError):  # a full disk: then nobody is named
            os.pwrite(self._file, f"{os.getpid():<20}".encode(), 0)
        _held.add(self)

    @property
    def in_place(self) -> bool:
        """Whether the file is still there; where it was deleted, another process can become a second owner."""
        try:
            return self._file is not None and os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _locked(folder: Path, owner: str) -> JournalLocked:
    if owner == str(os.getpid()):  # in a notebook: the cell that makes the producer was run again
        return JournalLocked(
            f"The journal {folder} is open in this process already.",
            fix="Use the producer that has it, or close() that one first.",
        )
    return JournalLocked(
        f"The journal {folder} belongs to process {owner or 'unknown'}.",
        fix="Stop that process, or give this producer a journal_dir of its own.",
    )


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)

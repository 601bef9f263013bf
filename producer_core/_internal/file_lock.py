"""Lock files across threads and processes with flock. The kernel releases the locks of a killed process."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

from producer_core._internal import private_files

if sys.platform != "win32":
    import fcntl

OPEN_OR_CREATE = os.O_RDWR | os.O_CREAT


class FileLocked(BlockingIOError):
    """The file is locked elsewhere. `holder` is the process id that the file contains, or an empty string."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(errno.EWOULDBLOCK, "The file is locked", str(path))
        self.holder = holder


class FileLock:
    """Open a file, private to its owner when it is created, and lock it on request until `release`.

    The lock belongs to the open file, not to the process. So a second FileLock on the same file is rejected in the
    same process too, and opening and closing the file elsewhere does not release the lock. A forked child closes its
    copies at once; otherwise it would keep the lock of a killed parent.
    """

    def __init__(self, path: Path, *, flags: int = OPEN_OR_CREATE) -> None:
        self.path = path
        self.descriptor = os.open(path, flags, private_files.FILE)
        self._process = os.getpid()
        _open_locks.add(self)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self, *, exclusive: bool = True) -> None:
        """Wait for the lock. Called again with another mode, it converts the lock."""
        _flock(self.descriptor, exclusive=exclusive, blocking=True)

    def try_acquire(self, *, exclusive: bool = True) -> bool:
        """Acquire the lock and return True, or return False while it is held elsewhere."""
        return try_lock(self.descriptor, exclusive=exclusive)

    @property
    def in_place(self) -> bool:
        """Return whether the file still exists. Once it is deleted, another process can lock a new one."""
        try:
            return self.descriptor >= 0 and os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def write_pid(self) -> None:
        """Write this process's id to the file, for the errors of other processes. Raise OSError on a full disk."""
        os.pwrite(self.descriptor, f"{os.getpid():<11}\n".encode(), 0)

    def read_pid(self) -> str:
        """Return the text that the last holder wrote, or an empty string."""
        return os.pread(self.descriptor, 32, 0).decode(errors="replace").strip()

    def release(self) -> None:
        """Release the lock and close the file. Further calls have no effect."""
        descriptor, self.descriptor = self.descriptor, -1
        _open_locks.discard(self)
        if descriptor < 0:
            return
        with contextlib.suppress(OSError):
            if os.getpid() == self._process:  # a child's unlock would release the parent's lock too
                _unlock(descriptor)
        with contextlib.suppress(OSError):
            os.close(descriptor)


def lock_file(path: Path, *, blocking: bool = True, flags: int = OPEN_OR_CREATE) -> FileLock:
    """Open the file and lock it exclusively. Raise FileLocked if it is held elsewhere and `blocking` is false.

    A file that its holder deleted before this process locked it is opened again.
    """
    while True:
        lock = FileLock(path, flags=flags)
        try:
            if blocking:
                lock.acquire()
            elif not lock.try_acquire():
                raise FileLocked(path, lock.read_pid())
            if lock.in_place:
                return lock
        except BaseException:
            lock.release()
            raise
        lock.release()


def try_lock(descriptor: int, *, exclusive: bool = True) -> bool:
    """Lock an open file and return True, or return False while it is locked elsewhere. Closing it unlocks it."""
    try:
        _flock(descriptor, exclusive=exclusive, blocking=False)
    except BlockingIOError:
        return False
    return True


def _flock(descriptor: int, *, exclusive: bool, blocking: bool) -> None:
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "Windows does not have these file locks")
    mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    fcntl.flock(descriptor, mode if blocking else mode | fcntl.LOCK_NB)


def _unlock(descriptor: int) -> None:
    """Unlock before closing: a child that a C library forked may still have a copy of the descriptor."""
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_open_locks: set[FileLock] = set()


def _release_in_child() -> None:
    while _open_locks:
        _open_locks.pop().release()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_in_child)

"""Group sync: one thread syncs a file for all waiting threads."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable


class GroupSync:
    """Sync an append-only file for many threads: `wait` returns after a sync that started after their writes.

    `size` returns the current size of the file, which only grows.
    """

    def __init__(self, sync: Callable[[], None], size: Callable[[], int]) -> None:
        self._sync_file = sync
        self._size = size
        self.synced = 0  # the bytes below this offset are on disk
        self.failed = False
        # Guards all fields. Taken as `_lock`, because an interrupt inside Condition would leave it locked.
        self._lock = threading.RLock()
        # Threads whose writes the running sync includes, and threads with later writes: one of these syncs next.
        self._included = threading.Condition(self._lock)
        self._later = threading.Condition(self._lock)
        self._target = 0  # the running sync includes the bytes below this offset
        self._syncing = False

    def wait(self, end: int) -> None:
        """Wait until the bytes below this offset are on disk. Raise OSError when their sync failed.

        A later successful sync would prove nothing: after a failure the kernel has dropped the pages. There is none.
        """
        while not self._sync_once(end):
            pass

    def _sync_once(self, end: int) -> bool:
        """Return whether the bytes are on disk; if not, sync once. After an interrupt, another thread continues."""
        confirmed, leading, target, synced, failed = False, False, 0, 0, False
        try:
            with self._lock:
                while self._syncing and self.synced < end:
                    (self._included if end <= self._target else self._later).wait()
                if self.synced >= end:
                    confirmed = True
                    return True
                if self.failed:
                    raise OSError(errno.EIO, "the disk did not confirm the write")
                leading = self._syncing = True
                target = self._target = self._size()
                self._included, self._later = self._later, self._included
            self._sync_file()
            synced = target
        except OSError:
            failed = leading
            raise
        finally:
            if not confirmed:
                with self._lock:
                    if leading:
                        self._syncing = False
                        self.synced = max(self.synced, synced)
                        self.failed |= failed
                        self._included.notify_all()
                    if self.failed:
                        self._later.notify_all()
                    elif not self._syncing:
                        self._later.notify()
        return False

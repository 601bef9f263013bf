"""Group sync: one thread syncs a file for all waiting threads."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

_RECHECK_S = 1.0
"""Seconds after which a waiting thread checks whether another thread still syncs: an interrupt can end the syncing
thread before it notifies the others."""


class GroupSync:
    """Sync an append-only file for many threads: `wait` returns after a sync that started after their writes.

    `size` returns the current size of the file, which only grows.
    """

    def __init__(self, sync: Callable[[], None], size: Callable[[], int]) -> None:
        self._sync_file = sync
        self._size = size
        # Changed by the syncing thread only, and without a lock, so that no interrupt can lose a failure.
        self.synced = 0  # the bytes below this offset are on disk
        self.failed = False
        self._leader: int | None = None  # the id of the syncing thread
        # Guards the fields below. Taken as `_lock`, because an interrupt inside Condition would leave it locked.
        self._lock = threading.RLock()
        # Threads whose writes the running sync includes, and threads with later writes: one of these syncs next.
        self._included = threading.Condition(self._lock)
        self._later = threading.Condition(self._lock)
        self._target = 0  # the running sync includes the bytes below this offset

    def wait(self, end: int) -> None:
        """Wait until the bytes below this offset are on disk. Raise OSError when their sync failed.

        A later successful sync would prove nothing: after a failure the kernel has dropped the pages. There is none.
        """
        while self.synced < end:
            if self.failed:
                raise OSError(errno.EIO, "the disk did not confirm the write")
            if self._leader == threading.get_ident():
                self._sync_again()
            else:
                self._wait_or_lead(end)

    def _sync_again(self) -> None:
        """Sync in a signal handler that interrupted the sync of its own thread: that sync cannot end before."""
        self._sync()
        with self._lock:
            self._later.notify_all()

    def _wait_or_lead(self, end: int) -> None:
        leading = False
        try:
            with self._lock:
                if self._leader is not None:
                    self._wait_for_leader(end)
                elif self.synced < end and not self.failed:
                    self._leader, leading = threading.get_ident(), True
                    self._target = self._size()
                    self._included, self._later = self._later, self._included
            if leading:
                self._sync()
        finally:
            if leading:
                self._leader = None
                self._notify()

    def _wait_for_leader(self, end: int) -> None:
        (self._included if end <= self._target else self._later).wait(_RECHECK_S)

    def _sync(self) -> None:
        target = self._size()
        try:
            self._sync_file()
        except OSError:
            self.failed = True
            raise
        if not self.failed and target > self.synced:
            self.synced = target

    def _notify(self) -> None:
        with self._lock:
            self._included.notify_all()
            if self.failed:
                self._later.notify_all()
            else:
                self._later.notify()

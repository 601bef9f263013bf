"""Group sync: one thread syncs a file for all waiting threads."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from itertools import pairwise

_RECHECK_S = 1.0
"""Seconds after which a waiting thread checks whether another thread still syncs: an interrupt can end the syncing
thread before it notifies the others."""


class _Waiter:
    """A thread that sleeps until a sync has ended, on a lock of its own.

    An interrupt inside Condition.wait would raise RuntimeError in its place. Each notified thread notifies the next one:
    threads that wake up at the same time would only wait for each other, because one of them can run.
    """

    __slots__ = ("_lock", "next")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.next: _Waiter | None = None

    def wait(self) -> bool:
        """Return whether the thread was notified, or False after `_RECHECK_S`."""
        return self._lock.acquire(timeout=_RECHECK_S)

    def notify(self) -> None:
        self._lock.release()

    def pass_on(self) -> None:
        """Notify the next thread, once: no call separates reading the field from its change."""
        following, self.next = self.next, None
        if following is not None:
            following.notify()


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
        self._lock = threading.RLock()  # guards the fields below
        # Threads whose writes the running sync includes, and threads with later writes: one of these syncs next.
        self._included: list[_Waiter] = []
        self._later: list[_Waiter] = []
        self._target = 0  # the running sync includes the bytes below this offset

    def wait(self, end: int) -> None:
        """Wait until the bytes below this offset are on disk. Raise OSError when their sync failed.

        A later successful sync would prove nothing: after a failure the kernel has dropped the pages. Therefore
        no sync follows a failed one.
        """
        while self.synced < end:
            if self.failed:
                raise OSError(errno.EIO, "the disk did not confirm the write")
            if self._leader == threading.get_ident():
                self._sync_again()
            else:
                self._wait_or_lead(end)

    def _sync_again(self) -> None:
        """Sync in a signal handler that interrupted its own thread's sync, which cannot end until the handler returns."""
        self._sync(self._size())
        self._notify(len(self._later))

    def _wait_or_lead(self, end: int) -> None:
        leading, received, waiter = False, False, _Waiter()
        try:
            with self._lock:
                if self._leader is not None:
                    (self._included if end <= self._target else self._later).append(waiter)
                elif self.synced < end and not self.failed:
                    self._leader, leading = threading.get_ident(), True
                    self._target = self._size()
                    self._included, self._later = self._included + self._later, []
                else:
                    received = True  # by now there is nothing to wait for
            if leading:
                self._sync(self._target)
            elif not received:
                received = waiter.wait()
        finally:
            if leading:
                self._leader = None
                self._notify(len(self._later) if self.failed else 1)
            elif received:
                waiter.pass_on()
            else:
                self._stop_waiting(waiter)

    def _stop_waiting(self, waiter: _Waiter) -> None:
        """Pass on a notification that arrived after the wait: it may have been the only one."""
        with self._lock:
            waiting = self._later if waiter in self._later else self._included
            if waiter in waiting:
                waiting.remove(waiter)
                return
        waiter.pass_on()
        self._notify(1)

    def _sync(self, target: int) -> None:
        """Sync the file, whose size is at least the target. Read the target first: a later write may not be included."""
        try:
            self._sync_file()
        except OSError:
            self.failed = True
            raise
        if not self.failed and target > self.synced:
            self.synced = target

    def _notify(self, later: int) -> None:
        """Notify the threads whose sync has ended, and then this many of those with later writes."""
        with self._lock:
            notified = self._included + self._later[:later]
            self._included, self._later = [], self._later[later:]
            for one, following in pairwise(notified):
                one.next = following
        if notified:
            notified[0].notify()

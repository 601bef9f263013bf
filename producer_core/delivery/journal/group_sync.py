"""Group sync: one thread syncs the file for all waiting threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from producer_core.delivery.journal.ranges import Ranges


class GroupSync:
    """Sync once for many writers: `written` returns a ticket, `wait` returns after a sync that started after it."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync_file = sync
        # Guards the fields below. Taken as `_lock`, because an interrupt inside Condition would leave it locked.
        self._lock = threading.RLock()
        # Threads whose writes the running sync includes, and threads with later writes: one of these syncs next.
        self._included = threading.Condition(self._lock)
        self._later = threading.Condition(self._lock)
        self._written = 0
        self._synced = 0
        self._target = 0  # the last ticket that the running sync includes
        self._failed = Ranges()
        self._syncing = False

    def written(self) -> int:
        """Return the ticket of a write. Call under the journal's lock."""
        self._written += 1
        return self._written

    def wait(self, ticket: int) -> None:
        """Wait until the write of this ticket is on disk. Raise OSError when its sync failed.

        A later successful sync proves nothing: after a failure the kernel has dropped the pages.
        """
        while not self._sync_once(ticket):
            pass

    def fail(self) -> None:
        """Mark everything that was written and not synced as failed."""
        with self._lock:
            if self._written > self._synced:
                self._failed.add(self._synced + 1, self._written + 1)
            self._included.notify_all()
            self._later.notify_all()

    def _sync_once(self, ticket: int) -> bool:
        """Return whether the write is on disk; if not, sync once. After an interrupt, another thread continues."""
        confirmed, leading, target, synced = False, False, 0, 0
        try:
            with self._lock:
                while self._syncing and self._synced < ticket and ticket not in self._failed:
                    (self._included if ticket <= self._target else self._later).wait()
                if ticket in self._failed:
                    raise OSError(5, "the disk did not confirm the write")
                if self._synced >= ticket:
                    confirmed = True
                    return True
                leading = self._syncing = True
                target = self._target = self._written
                self._included, self._later = self._later, self._included
            self._sync_file()
            synced = target
        finally:
            if not confirmed:
                with self._lock:
                    if leading:
                        self._syncing = False
                        self._synced = max(self._synced, synced)
                        self._included.notify_all()
                    if not self._syncing:
                        self._later.notify()
        return False

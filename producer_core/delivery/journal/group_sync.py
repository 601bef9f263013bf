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
        self._changed = threading.Condition(self._lock)
        self._written = 0
        self._synced = 0
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
            self._changed.notify_all()

    def _sync_once(self, ticket: int) -> bool:
        """Return whether the write is on disk; if not, sync once. An interrupt resets `_syncing`."""
        leading, target, synced = False, 0, 0
        try:
            with self._lock:
                while self._syncing and self._synced < ticket and ticket not in self._failed:
                    self._changed.wait()
                if ticket in self._failed:
                    raise OSError(5, "the disk did not confirm the write")
                if self._synced >= ticket:
                    return True
                leading = self._syncing = True
                target = self._written
            self._sync_file()
            synced = target
        finally:
            if leading:
                with self._lock:
                    self._syncing = False
                    self._synced = max(self._synced, synced)
                    self._changed.notify_all()
        return False

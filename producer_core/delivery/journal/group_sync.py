"""A group sync: many threads wait, one syncs for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from producer_core.delivery.journal.ranges import Ranges


class GroupSync:
    """`written` gives a ticket to whoever wrote; `wait` returns when a sync that began after it has ended."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._do = sync
        # Guards the fields below; taken by its own name, for an interrupt inside Condition would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._written = 0
        self._synced = 0
        self._failed = Ranges()
        self._syncing = False

    def written(self) -> int:
        self._written += 1  # under the journal's lock
        return self._written

    def wait(self, ticket: int) -> None:
        """OSError when its sync failed: a later one that succeeds proves nothing, the kernel has dropped the pages."""
        while not self._sync(ticket):
            pass

    def fail(self) -> None:
        """Nothing that was written and not synced can be relied on."""
        with self._lock:
            if self._written > self._synced:
                self._failed.add(self._synced + 1, self._written + 1)
            self._changed.notify_all()

    def _sync(self, ticket: int) -> bool:
        """Whether it is on the disk already; else sync, and ask again. What is noted under `mine` is undone at an interrupt."""
        mine, covers, done = False, 0, 0
        try:
            with self._lock:
                while self._syncing and self._synced < ticket and ticket not in self._failed:
                    self._changed.wait()
                if ticket in self._failed:
                    raise OSError(5, "the disk did not confirm it")
                if self._synced >= ticket:
                    return True
                mine = self._syncing = True
                covers = self._written
            self._do()
            done = covers
        finally:
            if mine:
                with self._lock:
                    self._syncing = False
                    self._synced = max(self._synced, done)
                    self._changed.notify_all()
        return False

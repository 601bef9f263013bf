"""A group sync: many threads wait, one syncs for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class GroupSync:
    """`written` gives a ticket to whoever wrote; `wait` returns when a sync that began after it has ended."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._do = sync
        self._changed = threading.Condition()  # guards the fields below
        self._written = 0
        self._synced = 0
        self._syncing = False

    def written(self) -> int:
        self._written += 1  # under the journal's lock
        return self._written

    def wait(self, ticket: int) -> None:
        """OSError when the sync failed; then nothing is known of what was written."""
        while True:
            with self._changed:
                while self._syncing and self._synced < ticket:
                    self._changed.wait()
                if self._synced >= ticket:
                    return
                self._syncing = True
                covers = self._written
            self._sync(covers)

    def _sync(self, covers: int) -> None:
        done = 0
        try:
            self._do()
            done = covers
        finally:
            with self._changed:
                self._syncing = False
                self._synced = max(self._synced, done)
                self._changed.notify_all()

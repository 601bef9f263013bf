"""Count the writes to a store, so that a process that polls it queries only what has changed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from producer_core.store import write_ahead_log

_FileState = tuple[int, int, int] | None


class ChangeCounter:
    """Counts the writes of all processes to the file and its write-ahead log, without opening them. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._paths = (path, write_ahead_log.path_of(path))
        self._lock = threading.Lock()  # guards the fields below
        self._seen = self._states()
        self._count = 0
        self._uncounting = False  # an uncounted write changes the files now

    def count(self) -> int:
        """Return a number that increases whenever a write was noticed."""
        with self._lock:
            return self._update()

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count the write in this block. The caller has locked out all other users of the file."""
        with self._lock:
            self._update()
            self._uncounting = True
        try:
            yield
            with self._lock:
                self._seen = self._states()
        finally:
            self._uncounting = False

    def _update(self) -> int:
        if not self._uncounting and (states := self._states()) != self._seen:
            self._seen = states
            self._count += 1
        return self._count

    def _states(self) -> tuple[_FileState, ...]:
        return tuple(_state(path) for path in self._paths)


def _state(path: Path) -> _FileState:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

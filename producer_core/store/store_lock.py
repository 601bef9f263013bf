"""Lock the store's file across processes. The kernel releases the locks of a killed process."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from producer_core._internal import read_activity, time_budget
from producer_core._internal.file_lock import FileLock
from producer_core.errors import StoreLocked, StoreUnavailable
from producer_core.store.file_errors import CHOOSE_PATH

_MAX_PAUSE = 0.02


class StoreLock:
    """Shared and exclusive locks on `<store>.lock`, entered one at a time through `<store>.gate`.

    The gate prevents a stream of readers from starving a writer: a thread that waits for the lock holds the gate, and
    later ones queue behind it. Each lock opens its own descriptors, so threads exclude each other too.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._gate = store.with_name(store.name + ".gate")
        self._lock = store.with_name(store.name + ".lock")

    @contextlib.contextmanager
    def hold(self, *, exclusive: bool, deadline: float) -> Iterator[None]:
        """Hold the lock for a block. Raise StoreLocked if `deadline` (monotonic) passes first."""
        with contextlib.ExitStack() as stack:
            with self._locked(self._gate, exclusive=True, deadline=deadline, needed=exclusive) as gate:
                if gate is not None and not exclusive:
                    read_activity.record_read(gate.descriptor)
                inner = self._locked(self._lock, exclusive=exclusive, deadline=deadline, needed=exclusive)
                lock = stack.enter_context(inner)
            if lock is not None:
                with contextlib.suppress(OSError):  # only the errors of waiting processes need the id
                    lock.write_pid()
            yield

    def recently_read(self) -> bool:
        """Whether any process has read the store within the last few seconds."""
        return read_activity.recently_read(self._gate)

    @contextlib.contextmanager
    def _locked(
        self, path: Path, *, exclusive: bool, deadline: float, needed: bool
    ) -> Iterator[FileLock | None]:
        lock = self._open(path, needed=needed)
        if lock is None:
            yield None
            return
        with lock:
            self._wait(lock, exclusive=exclusive, deadline=deadline)
            yield lock

    def _open(self, path: Path, *, needed: bool) -> FileLock | None:
        """Open a lock file. Return None for a reader if the directory is read-only.

        No process of this user writes to such a directory, and DuckDB's own lock still protects the file.
        """
        if sys.platform == "win32":
            raise StoreUnavailable(
                "The store needs file locks that Windows does not have.",
                fix="Use WSL, or store=None.",
            )
        try:
            return FileLock(path)
        except OSError as error:
            if not needed:
                with contextlib.suppress(OSError):
                    return FileLock(path, flags=os.O_RDONLY)
                return None
            raise _cannot_open(self._store, path, error) from error

    def _wait(self, lock: FileLock, *, exclusive: bool, deadline: float) -> None:
        pause, waiting = 0.001, threading.Event()
        while not lock.try_acquire(exclusive=exclusive):
            if time.monotonic() >= deadline or time_budget.over():
                raise StoreLocked(
                    f"The store {self._store} is in use{self._holder()} and was not released in time."
                )
            waiting.wait(pause)
            pause = min(pause * 2, _MAX_PAUSE)

    def _holder(self) -> str:
        try:
            pid = self._lock.read_text(errors="replace").strip()
        except OSError:
            return ""
        return f" by process {pid}" if pid.isdigit() else ""


def _cannot_open(store: Path, path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The lock file {path} cannot be opened ({error.strerror}), so nothing can be written to {store}.",
        fix="Grant this user write permission on the directory and its files, or choose another path: "
        f"{CHOOSE_PATH}.",
    )

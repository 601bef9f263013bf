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
from producer_core.errors import StoreLocked, StoreUnavailable

if sys.platform != "win32":
    import fcntl

_held: set[int] = set()
"""Descriptors of held locks. A forked child closes its copies."""

_MAX_PAUSE = 0.02


class FileLock:
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
                if not exclusive:
                    read_activity.record_read(gate)
                inner = self._locked(self._lock, exclusive=exclusive, deadline=deadline, needed=exclusive)
                descriptor = stack.enter_context(inner)
            _write_pid(descriptor)
            yield

    def recently_read(self) -> bool:
        """Whether any process has read the store within the last seconds."""
        return read_activity.recently_read(self._gate)

    @contextlib.contextmanager
    def _locked(self, path: Path, *, exclusive: bool, deadline: float, needed: bool) -> Iterator[int | None]:
        descriptor = self._open(path, needed=needed)
        if descriptor is None:
            yield None
            return
        _held.add(descriptor)
        try:
            self._wait(descriptor, exclusive=exclusive, deadline=deadline)
            yield descriptor
        finally:
            if descriptor in _held:  # not closed by a fork since then
                _held.discard(descriptor)
                _unlock(descriptor)

    def _open(self, path: Path, *, needed: bool) -> int | None:
        """Open a lock file. Return None for a reader if the directory is read-only.

        No process of this user writes to such a directory, and DuckDB's own lock still protects the file.
        """
        if sys.platform == "win32":
            raise StoreUnavailable(
                "The store needs file locks that Windows does not have.",
                fix="Use WSL, or store=None.",
            )
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            if not needed:
                with contextlib.suppress(OSError):
                    return os.open(path, os.O_RDONLY)
                return None
            raise _cannot_open(self._store, path, error) from error

    def _wait(self, descriptor: int, *, exclusive: bool, deadline: float) -> None:
        pause, waiting = 0.001, threading.Event()
        while not _try_lock(descriptor, exclusive=exclusive):
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


def _try_lock(descriptor: int, *, exclusive: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    # Closing is not enough: a child forked since then may still have a copy of the descriptor.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _write_pid(descriptor: int | None) -> None:
    """Write this process's id to the lock file, for the errors of waiting processes. Failure is not an error."""
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, f"{os.getpid():<11}\n".encode(), 0)


def _cannot_open(store: Path, path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The lock file {path} cannot be opened ({error.strerror}), so nothing can be written to {store}.",
        fix="Give this user write permission on the directory and its files, or choose another path with --store.",
    )


def _close_in_child() -> None:
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)

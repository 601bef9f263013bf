"""The turnstile: who may use the store's file now, held by the kernel, so that a killed process lets go."""

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
"""Descriptors of locks that are held now; a forked child closes its copies."""

_LONGEST_PAUSE = 0.02


class FileLock:
    """Shared and exclusive holds on `<store>.lock`, entered one at a time through `<store>.gate`.

    The gate keeps a stream of readers from starving a writer: who waits for the lock holds the gate, and
    everyone later waits behind. Each hold opens its own descriptors, so threads exclude each other too.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._gate = store.with_name(store.name + ".gate")
        self._lock = store.with_name(store.name + ".lock")

    @contextlib.contextmanager
    def hold(self, *, exclusive: bool, deadline: float) -> Iterator[None]:
        """Hold the lock until the block ends; StoreLocked when `deadline` (monotonic) passes first."""
        with contextlib.ExitStack() as leaving:
            with self._locked(self._gate, exclusive=True, deadline=deadline, needed=exclusive) as gate:
                if not exclusive:
                    read_activity.record_read(gate)
                inner = self._locked(self._lock, exclusive=exclusive, deadline=deadline, needed=exclusive)
                descriptor = leaving.enter_context(inner)
            _sign(descriptor)
            yield

    def recently_read(self) -> bool:
        """Whether somebody has read through this turnstile within the last seconds, in whatever process."""
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
            if descriptor in _held:  # not closed by a fork in between
                _held.discard(descriptor)
                _unlock(descriptor)

    def _open(self, path: Path, *, needed: bool) -> int | None:
        """The side file; None when a reader cannot have one because the folder is read-only.

        Nobody of this user writes into such a folder, and DuckDB's own lock still guards the file.
        """
        if sys.platform == "win32":
            raise StoreUnavailable(
                "The store needs file locks that Windows does not have.", fix="Use WSL, or store=None."
            )
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            if not needed:
                with contextlib.suppress(OSError):
                    return os.open(path, os.O_RDONLY)
                return None
            raise _refused(self._store, path, error) from error

    def _wait(self, descriptor: int, *, exclusive: bool, deadline: float) -> None:
        pause, waiting = 0.001, threading.Event()
        while not _try_lock(descriptor, exclusive=exclusive):
            if time.monotonic() >= deadline or time_budget.over():
                raise StoreLocked(
                    f"The store {self._store} is in use{self._holder()}; it was not released in time."
                )
            waiting.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

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
    # Closing alone would not do: a child forked meanwhile may still have a copy of the descriptor.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _sign(descriptor: int | None) -> None:
    """Leave our pid in the lock file for whoever waits; a full disk or a read-only file is no obstacle."""
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, f"{os.getpid():<11}\n".encode(), 0)


def _refused(store: Path, path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The lock file {path} cannot be opened ({error.strerror}), so nothing can be written to {store}.",
        fix="Give this user write permission on the folder and its files, or choose another path with --store.",
    )


def _let_go_in_child() -> None:
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go_in_child)

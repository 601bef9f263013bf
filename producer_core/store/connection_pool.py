"""Borrow connections to the store's file: attach it, work, detach it, so that many processes can share it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

from producer_core._internal import at_exit, time_budget
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import StoreError, StoreLocked
from producer_core.store import file_errors, write_ahead_log
from producer_core.store.change_counter import ChangeCounter
from producer_core.store.checkpoint import checkpointed, may_wait
from producer_core.store.duckdb_instance import create_instance
from producer_core.store.query_limit import cancelled_after
from producer_core.store.store_lock import StoreLock
from producer_core.store.undo_log import UndoLog

logger = queued_logger(__name__)

ALIAS = "store"
READ_LIMIT = 2.0
"""Seconds after which a read query is cancelled, so that a writer never waits long."""

_RENEW_AFTER_BORROWS = 200
"""Borrows after which the DuckDB instance is replaced, which takes 12 ms. During its life an instance keeps up to 5 KB of
each write borrow and 0.3 KB of each read borrow."""
_FORK_WAIT = 2.0
_CLOSE_WAIT = 10.0
_POLL_S = 0.05
"""Seconds after which a thread that waits for another checks its time budget."""
_END_WAIT = 30.0

_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()


class ConnectionPool:
    """Lends connections to one file, with one in-memory DuckDB instance for hundreds of borrows.

    Attaching a file to an existing instance takes 2 ms; opening it in a new one takes 12. Safe in several threads (one
    borrows at a time) and after a fork (the child creates its own instance).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_lock = StoreLock(path)
        self._undo_log = UndoLog(path)
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._owner: int | None = None
        self._writing = False
        self._current: duckdb.DuckDBPyConnection | None = None
        self._instance: duckdb.DuckDBPyConnection | None = None
        self._borrows = 0
        self._attached_now: tuple[duckdb.DuckDBPyConnection, ...] = ()
        self._paused = False
        self._changes = ChangeCounter(self._path)

    @contextlib.contextmanager
    def borrow(
        self, *, write: bool = False, timeout: float = 10.0, limit: float | None = None, routine: bool = False
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a connection in which the store's tables have their plain names.

        With `write` the block is one transaction: committed at its end, rolled back by an exception. Without it, nothing
        can be changed, and a query is cancelled `limit` seconds (default 2) after the start. A thread that borrows again
        inside its own block gets the same connection. The block belongs to the parent: a child forked inside it neither
        commits nor rolls back. `changes` does not count a `routine` write, whose checkpoint may wait for a minute.
        """
        if self._owner == threading.get_ident() and self._current is not None:
            if write and not self._writing:
                raise StoreError(
                    "A block that reads the store cannot start to write.", fix="Borrow with write=True."
                )
            with _translated(self._path):
                yield self._current
            return
        deadline = time.monotonic() + timeout
        with self._locked(deadline, timeout), self._whole_file(exclusive=write, deadline=deadline):
            routine = routine and write
            counted = self._changes.uncounted() if routine else contextlib.nullcontext()
            deferring = routine and not self.recently_read()
            with (
                counted,
                self._attached(self._path, write=write, deadline=deadline, deferring=deferring) as connection,
            ):
                self._owner, self._writing, self._current = threading.get_ident(), write, connection
                try:
                    with _translated(self._path), self._bounded(connection, write=write, limit=limit):
                        yield connection
                finally:
                    self._owner = self._current = None

    @contextlib.contextmanager
    def alone(self, *, timeout: float = 10.0) -> Iterator[None]:
        """Lock out all other users while the file itself is created or replaced."""
        deadline = time.monotonic() + timeout
        with self._locked(deadline, timeout), self._whole_file(exclusive=True, deadline=deadline):
            yield

    @contextlib.contextmanager
    def attached(self, path: Path, *, write: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a connection to `path` itself. The caller must already have locked out all other users.

        After a write block the file itself holds all data. Raise StoreFull if a part is only in the write-ahead log.
        """
        with self._attached(path, write=write, deadline=time.monotonic()) as connection:
            yield connection
        if write and write_ahead_log.path_of(path).exists():
            raise file_errors.disk_full(self._path)

    def changes(self) -> int:
        """Return the number of noticed writes; see `Store.changes`."""
        return self._changes.count()

    def recently_read(self) -> bool:
        """Whether any process has read the file within the last few seconds."""
        return self._file_lock.recently_read()

    def close(self) -> None:
        """Free the instance; the next borrow creates a new one. An instance in use by another thread stays."""
        deadline = time.monotonic() + _CLOSE_WAIT
        if _acquired(self._lock, deadline):
            try:
                self._discard()
            finally:
                self._lock.release()

    def before_fork(self) -> None:
        """Wait until other threads have ended their blocks, so that a child does not inherit half of one."""
        self._paused = self._owner != threading.get_ident() and self._lock.acquire(timeout=_FORK_WAIT)

    def after_fork(self) -> None:
        """Let other threads of the parent continue."""
        if self._paused:
            self._paused = False
            self._lock.release()

    def disown(self) -> None:
        """Start again in the child, without touching the parent's objects.

        DuckDB crashes when a child closes an inherited instance, even in a destructor at interpreter exit, so these
        objects are kept alive forever.
        """
        for inherited in (self._instance, *self._attached_now):
            if inherited is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
        self._begin()

    def at_end(self) -> None:
        """Wait until another thread has ended its block, and let no new one begin: interpreter exit would stop the thread
        inside DuckDB, which aborts the process. A thread that waits for the file stops waiting."""
        time_budget.end_for_all()
        if self._owner != threading.get_ident() and self._lock.acquire(timeout=_END_WAIT):
            self._discard()

    @contextlib.contextmanager
    def _locked(self, deadline: float, timeout: float) -> Iterator[None]:
        lock, pid = self._lock, os.getpid()
        if not _acquired(lock, min(deadline, time.monotonic() + timeout)):
            raise StoreLocked(
                f"The store {self._path} is in use: another thread in this process has held or awaited it for too long."
            )
        try:
            yield
        finally:
            if os.getpid() == pid:
                lock.release()

    @contextlib.contextmanager
    def _whole_file(self, *, exclusive: bool, deadline: float) -> Iterator[None]:
        """Lock the file, once no checkpoint of a killed process is left to undo."""
        while True:
            with self._file_lock.hold(exclusive=exclusive, deadline=deadline):
                if exclusive:
                    self._undo_log.undo()
                if exclusive or not self._undo_log.is_pending():
                    yield
                    return
            with self._file_lock.hold(exclusive=True, deadline=deadline):
                self._undo_log.undo()

    @contextlib.contextmanager
    def _attached(
        self, path: Path, *, write: bool, deadline: float, deferring: bool = False
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a connection. With `deferring`, the write-ahead log may keep a small write until a later checkpoint."""
        instance = self._get_instance()
        cursor, pid = instance.cursor(), os.getpid()
        self._attached_now = (instance, cursor)
        try:
            self._attach(instance, path, write=write, deadline=deadline)
            cursor.execute(f"USE {ALIAS}")
            yield cursor
        finally:
            if os.getpid() == pid:
                self._detach(instance, cursor, path, write=write, deferring=deferring)
                self._attached_now = ()
                if write:
                    write_ahead_log.delete_empty(path)

    def _get_instance(self) -> duckdb.DuckDBPyConnection:
        """Return the instance, or a new one after many borrows."""
        if self._borrows >= _RENEW_AFTER_BORROWS:
            self._discard()
        if self._instance is None:
            self._instance, self._borrows = create_instance(self._path), 0
        self._borrows += 1
        return self._instance

    def _attach(
        self, instance: duckdb.DuckDBPyConnection, path: Path, *, write: bool, deadline: float
    ) -> None:
        options = "TYPE duckdb" if write else "TYPE duckdb, READ_ONLY"
        quoted, pause = str(path).replace("'", "''"), threading.Event()
        while True:
            try:
                instance.execute(f"ATTACH '{quoted}' AS {ALIAS} ({options})")
                break
            except duckdb.Error as error:
                if write and self._set_foreign_log_aside(path, error):
                    continue
                store_error = file_errors.from_duckdb(error, self._path)  # or for its draft
                if (
                    not isinstance(store_error, StoreLocked)
                    or time.monotonic() >= deadline
                    or time_budget.over()
                ):
                    raise store_error from error
            pause.wait(0.02)
        if write:
            write_ahead_log.create(path)

    def _set_foreign_log_aside(self, path: Path, error: duckdb.Error) -> bool:
        """Set the log aside if the file was replaced by a copy to which it does not belong; return whether it was."""
        if not file_errors.is_foreign_log(error):
            return False
        orphan = write_ahead_log.set_aside(path)
        text = "the write-ahead log of a replaced store was set aside"
        logger.error(**with_fields(text, path=str(path), log=str(orphan)))
        return True

    def _detach(
        self,
        instance: duckdb.DuckDBPyConnection,
        cursor: duckdb.DuckDBPyConnection,
        path: Path,
        *,
        write: bool,
        deferring: bool,
    ) -> None:
        try:
            cursor.close()
            checkpoint = write and not (deferring and may_wait(path))
            with checkpointed(instance, ALIAS, path) if checkpoint else contextlib.nullcontext():
                instance.execute(f"DETACH {ALIAS}")
        except duckdb.Error:
            self._discard()
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        instance, self._instance = self._instance, None
        if instance is not None:
            with contextlib.suppress(duckdb.Error):
                instance.close()

    def _bounded(
        self, connection: duckdb.DuckDBPyConnection, *, write: bool, limit: float | None
    ) -> contextlib.AbstractContextManager[None]:
        if write:
            return _transaction(connection, self._path)
        return cancelled_after(connection, READ_LIMIT if limit is None else limit)


def _acquired(lock: threading.Lock, deadline: float) -> bool:
    """Acquire the lock before the deadline and within this thread's time budget; return whether that succeeded."""
    if lock.acquire(timeout=max(0.0, min(deadline - time.monotonic(), _POLL_S))):
        return True
    while time.monotonic() < deadline and not time_budget.over():
        if lock.acquire(timeout=_POLL_S):
            return True
    return False


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise file_errors.from_duckdb(error, path) from error


@contextlib.contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    pid = os.getpid()
    connection.begin()
    try:
        yield
        if os.getpid() == pid:
            connection.commit()
    except BaseException:
        if os.getpid() == pid:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
        raise


def _each(action: Callable[[ConnectionPool], None]) -> Callable[[], None]:
    def call() -> None:
        for pool in list(_pools):
            action(pool)

    return call


if sys.platform != "win32":
    os.register_at_fork(
        before=_each(ConnectionPool.before_fork),
        after_in_parent=_each(ConnectionPool.after_fork),
        after_in_child=_each(ConnectionPool.disown),
    )
at_exit.run_last(_each(ConnectionPool.at_end))

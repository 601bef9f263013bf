"""A borrowing of the store's file: attach it, work, let go, so that many processes can share it."""

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
from producer_core.errors import StoreError, StoreLocked
from producer_core.store import file_errors
from producer_core.store.file_lock import FileLock

ALIAS = "store"
READ_LIMIT = 2.0
"""Seconds after which a reader is cancelled, so that a writer never waits long."""

_RENEWED_AFTER = 200
"""Borrowings until the DuckDB instance is made anew, which takes 12 ms: it keeps up to 5 KB of each that wrote, and
0.3 KB of each that read, for as long as it lives."""
_FORK_WAIT = 2.0
_CLOSE_WAIT = 10.0
_STEP = 0.05
"""Seconds until a thread that waits for another looks at its patience."""
_END_WAIT = 30.0

_lenders: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()


class ConnectionPool:
    """Lends connections to one file, one DuckDB instance in memory for hundreds of them.

    Attaching a file to a living instance takes 2 ms; opening it anew takes 12. Safe to use from several
    threads (one borrows at a time) and after a fork (the child makes its own instance).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turnstile = FileLock(path)
        self._begin()
        _lenders.add(self)

    def _begin(self) -> None:
        self._one = threading.Lock()  # guards the fields below
        self._owner: int | None = None
        self._writing = False
        self._lent: duckdb.DuckDBPyConnection | None = None
        self._instance: duckdb.DuckDBPyConnection | None = None
        self._lent_by_it = 0
        self._attached_now: tuple[duckdb.DuckDBPyConnection, ...] = ()
        self._paused = False

    @contextlib.contextmanager
    def borrow(
        self, *, write: bool = False, timeout: float = 10.0, limit: float | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection in which the store's tables have their plain names.

        With `write` the block is one transaction: committed at its end, rolled back by an exception.
        Without, nothing can be changed, and a query is cancelled `limit` seconds (default 2) after the
        start. A thread that borrows again inside its own block gets the connection it has. The block is
        the parent's: a child forked inside it neither commits nor rolls back.
        """
        if self._owner == threading.get_ident() and self._lent is not None:
            if write and not self._writing:
                raise StoreError(
                    "A block that reads the store cannot begin to write.", fix="Borrow with write=True."
                )
            with _translated(self._path):
                yield self._lent
            return
        deadline = time.monotonic() + timeout
        with self._alone(deadline, timeout), self._turnstile.hold(exclusive=write, deadline=deadline):
            with self._attached(self._path, write=write, deadline=deadline) as connection:
                self._owner, self._writing, self._lent = threading.get_ident(), write, connection
                try:
                    with _translated(self._path), self._bounded(connection, write=write, limit=limit):
                        yield connection
                finally:
                    self._owner = self._lent = None

    @contextlib.contextmanager
    def alone(self, *, timeout: float = 10.0) -> Iterator[None]:
        """Keep everyone else out while the file itself is made or replaced."""
        deadline = time.monotonic() + timeout
        with self._alone(deadline, timeout), self._turnstile.hold(exclusive=True, deadline=deadline):
            yield

    @contextlib.contextmanager
    def attached(self, path: Path, *, write: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to `path` itself, for a caller who already keeps everyone else out."""
        with self._attached(path, write=write, deadline=time.monotonic()) as connection:
            yield connection

    def stamp(self) -> object:
        """Of the file and of its log, as `Store.stamp` says."""
        return _stamp(self._path), _stamp(_log_of(self._path))

    def recently_read(self) -> bool:
        """Whether somebody has read the file within the last seconds, in whatever process."""
        return self._turnstile.recently_read()

    def close(self) -> None:
        """Free the instance; the next borrow makes a new one. One that a thread of ours uses stays."""
        deadline = time.monotonic() + _CLOSE_WAIT
        if _acquired(self._one, deadline):
            try:
                self._discard()
            finally:
                self._one.release()

    def before_fork(self) -> None:
        """Let other threads end their blocks, so that a child does not inherit half of one."""
        self._paused = self._owner != threading.get_ident() and self._one.acquire(timeout=_FORK_WAIT)

    def after_fork(self) -> None:
        """In the parent: go on."""
        if self._paused:
            self._paused = False
            self._one.release()

    def disown(self) -> None:
        """In the child: begin anew, and never touch what is the parent's.

        DuckDB crashes when a child closes an inherited instance, be it by its destructor at the
        interpreter's end; so these objects are made to live for ever.
        """
        for inherited in (self._instance, *self._attached_now):
            if inherited is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
        self._begin()

    def at_end(self) -> None:
        """Let another thread end its block, and let none begin: the interpreter's end would stop it inside DuckDB,
        which aborts the process. A thread that waits for the file waits no more."""
        time_budget.end_for_all()
        if self._owner != threading.get_ident() and self._one.acquire(timeout=_END_WAIT):
            self._discard()

    @contextlib.contextmanager
    def _alone(self, deadline: float, timeout: float) -> Iterator[None]:
        one, pid = self._one, os.getpid()
        if not _acquired(one, min(deadline, time.monotonic() + timeout)):
            raise StoreLocked(
                f"The store {self._path} is in use: another thread of this process has waited for it, or used it, too long."
            )
        try:
            yield
        finally:
            if os.getpid() == pid:
                one.release()

    @contextlib.contextmanager
    def _attached(self, path: Path, *, write: bool, deadline: float) -> Iterator[duckdb.DuckDBPyConnection]:
        instance = self._living()
        cursor, pid = instance.cursor(), os.getpid()
        self._attached_now = (instance, cursor)
        try:
            self._attach(instance, path, write=write, deadline=deadline)
            cursor.execute(f"USE {ALIAS}")
            yield cursor
        finally:
            if os.getpid() == pid:
                self._let_go(instance, cursor)
                self._attached_now = ()
                if write:
                    _drop_empty_log(path)

    def _living(self) -> duckdb.DuckDBPyConnection:
        """The instance, or a new one where it has lent often."""
        if self._lent_by_it >= _RENEWED_AFTER:
            self._discard()
        if self._instance is None:
            self._instance, self._lent_by_it = _in_memory(self._path), 0
        self._lent_by_it += 1
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
                fault = file_errors.from_duckdb(error, path)
                if not isinstance(fault, StoreLocked) or time.monotonic() >= deadline or time_budget.over():
                    raise fault from error
            pause.wait(0.02)
        if write:
            _make_log(path)

    def _let_go(self, instance: duckdb.DuckDBPyConnection, cursor: duckdb.DuckDBPyConnection) -> None:
        """Detach; this checkpoints. A checkpoint that finds the disk full leaves all it has in the WAL."""
        try:
            cursor.close()
            instance.execute(f"DETACH {ALIAS}")
        except duckdb.Error as error:
            if "CHECKPOINT during DETACH failed" not in str(error):
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
        return _cancelled_after(connection, READ_LIMIT if limit is None else limit)


def _acquired(lock: threading.Lock, deadline: float) -> bool:
    """Before the deadline, and before this thread's patience is over."""
    if lock.acquire(timeout=max(0.0, min(deadline - time.monotonic(), _STEP))):
        return True
    while time.monotonic() < deadline and not time_budget.over():
        if lock.acquire(timeout=_STEP):
            return True
    return False


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise file_errors.from_duckdb(error, path) from error


def _in_memory(path: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(
        ":memory:",
        config={
            "threads": 1,  # no background threads: cheap to keep, and a fork leaves nothing behind
            "memory_limit": "1GB",
            "temp_directory": str(path.with_name(path.name + ".tmp")),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )


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


def _make_log(path: Path) -> None:
    """Make the write-ahead log, which holds message bodies, for its owner alone: DuckDB makes it with the umask."""
    with contextlib.suppress(OSError):  # no room for it: DuckDB's own words say so better
        os.close(os.open(_log_of(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _drop_empty_log(path: Path) -> None:
    """Delete the log where nothing was written: DuckDB deletes only what it wrote."""
    log = _log_of(path)
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _cancelled_after(connection: duckdb.DuckDBPyConnection, limit: float) -> Iterator[None]:
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(connection, done, limit), name="store-limit", daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(connection: duckdb.DuckDBPyConnection, done: threading.Event, limit: float) -> None:
    pause = limit
    while not done.wait(pause):  # an interrupt between two queries is lost, so it is repeated
        connection.interrupt()
        pause = 0.05


def _each(act: Callable[[ConnectionPool], None]) -> Callable[[], None]:
    def do() -> None:
        for lender in list(_lenders):
            act(lender)

    return do


if sys.platform != "win32":
    os.register_at_fork(
        before=_each(ConnectionPool.before_fork),
        after_in_parent=_each(ConnectionPool.after_fork),
        after_in_child=_each(ConnectionPool.disown),
    )
at_exit.run_last(_each(ConnectionPool.at_end))

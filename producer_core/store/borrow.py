"""A borrowing of the store's file: attach it, work, let go, so that many processes can share it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb

from producer_core.errors import StoreError, StoreLocked
from producer_core.store import faults
from producer_core.store.locks import Turnstile

ALIAS = "store"
READ_LIMIT = 2.0
"""Seconds after which a reader is cancelled, so that a writer never waits long."""

_inherited: list[object] = []
"""Instances of a parent process: a forked child never touches them, not even to close them."""


class Lender:
    """Lends connections to one file. One DuckDB instance in memory lives as long as the lender.

    Attaching a file to a living instance takes 2 ms; opening it anew takes 12. Safe to use from several
    threads (one borrows at a time) and after a fork (the child makes its own instance).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turnstile = Turnstile(path)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._one = threading.Lock()  # guards the fields below
        self._owner: int | None = None
        self._writing = False
        self._lent: duckdb.DuckDBPyConnection | None = None
        self._instance: duckdb.DuckDBPyConnection | None = None

    @contextlib.contextmanager
    def borrow(
        self, *, write: bool = False, timeout: float = 10.0, limit: float | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection in which the store's tables have their plain names.

        With `write` the block is one transaction: committed at its end, rolled back by an exception.
        Without, nothing can be changed, and a query is cancelled `limit` seconds (default 2) after the
        start. A thread that borrows again inside its own block gets the connection it has.
        """
        self._after_fork()
        if self._owner == threading.get_ident() and self._lent is not None:
            if write and not self._writing:
                raise StoreError(
                    "A block that reads the store cannot begin to write.", fix="Borrow with write=True."
                )
            yield self._lent
            return
        deadline = time.monotonic() + timeout
        with self._alone(deadline, timeout), self._turnstile.hold(exclusive=write, deadline=deadline):
            with self._attached(self._path, write=write, deadline=deadline) as connection:
                self._owner, self._writing, self._lent = threading.get_ident(), write, connection
                try:
                    yield from self._work(connection, write=write, limit=limit)
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

    def close(self) -> None:
        """Free the instance; the next borrow makes a new one."""
        with self._one:
            self._discard()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.append(self._instance)
            self._begin()

    @contextlib.contextmanager
    def _alone(self, deadline: float, timeout: float) -> Iterator[None]:
        if not self._one.acquire(timeout=max(0.0, min(deadline - time.monotonic(), timeout))):
            raise StoreLocked(f"Another thread of this process has used the store {self._path} for too long.")
        try:
            yield
        finally:
            self._one.release()

    @contextlib.contextmanager
    def _attached(self, path: Path, *, write: bool, deadline: float) -> Iterator[duckdb.DuckDBPyConnection]:
        instance = self._instance = self._instance or _in_memory(self._path)
        self._attach(instance, path, write=write, deadline=deadline)
        cursor = instance.cursor()
        try:
            cursor.execute(f"USE {ALIAS}")
            yield cursor
        finally:
            self._let_go(instance, cursor)

    def _attach(
        self, instance: duckdb.DuckDBPyConnection, path: Path, *, write: bool, deadline: float
    ) -> None:
        options = "TYPE duckdb" if write else "TYPE duckdb, READ_ONLY"
        quoted, pause = str(path).replace("'", "''"), threading.Event()
        while True:
            try:
                instance.execute(f"ATTACH '{quoted}' AS {ALIAS} ({options})")
                return
            except duckdb.Error as error:
                fault = faults.from_duckdb(error, path)
                if not isinstance(fault, StoreLocked) or time.monotonic() >= deadline:
                    raise fault from error
            pause.wait(0.02)

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

    def _work(
        self, connection: duckdb.DuckDBPyConnection, *, write: bool, limit: float | None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            if write:
                yield from _transaction(connection, self._path)
            else:
                with _cancelled_after(connection, READ_LIMIT if limit is None else limit):
                    yield connection
        except duckdb.Error as error:
            raise faults.from_duckdb(error, self._path) from error


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


def _transaction(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection.begin()
    try:
        yield connection
        connection.commit()
    except BaseException:
        with contextlib.suppress(duckdb.Error):
            connection.rollback()
        raise
    with contextlib.suppress(OSError):  # DuckDB makes its log with the umask; it holds message bodies
        path.with_name(path.name + ".wal").chmod(0o600)


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

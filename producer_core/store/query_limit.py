"""Cancel a query that runs for too long."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import duckdb


@contextlib.contextmanager
def cancelled_after(connection: duckdb.DuckDBPyConnection, limit: float) -> Iterator[None]:
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
    while not done.wait(pause):  # an interrupt between two queries has no effect, so it is repeated
        connection.interrupt()
        pause = 0.05

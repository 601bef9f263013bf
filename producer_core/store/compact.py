"""Compact a store: write a new file that contains only the content of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import duckdb

from producer_core.errors import StoreError, StoreTooNew
from producer_core.store import file_errors, paths
from producer_core.store.connection_pool import ConnectionPool
from producer_core.store.migrate import check, migrate, newest

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAIT = 60.0

_LAST = ("dead_letter_counts",)
"""Tables written after the others, because triggers of the others write to them too."""


def compact(pool: ConnectionPool, path: Path, *, now: float) -> int:
    """Replace the file with a copy without the space that deleted rows occupied; return the number of bytes saved.

    Other users of the store wait during this. The copy is complete and durable before it replaces the file; a process
    killed before that leaves the old file unchanged.
    """
    with pool.alone(timeout=_WAIT):
        before = path.stat().st_size
        try:
            _merge_wal(pool, path)
            _check_version(pool, path)
            draft = paths.clean_draft(path)
            with pool.attached(draft, write=True) as connection:
                _copy(connection, path, now=now)
            paths.publish_whole(draft, path)
        except (OSError, duckdb.Error, StoreError) as error:
            paths.remove_draft(path)
            raise _store_error(error, path) from error
        return before - path.stat().st_size


def _merge_wal(pool: ConnectionPool, path: Path) -> None:
    """Move the content of a write-ahead log, left by a crash, to the file before it is copied."""
    with pool.attached(path, write=True):
        pass


def _check_version(pool: ConnectionPool, path: Path) -> None:
    """Raise StoreTooNew if the store has migrations that this version lacks: the copy could not contain their tables."""
    with pool.attached(path, write=False) as connection:
        version = check(connection, path)
    if version > newest():
        raise StoreTooNew(
            f"The store {path} has schema version {version}. This producer_core compacts stores up to version {newest()}; "
            "nothing was changed.",
            fix="Compact the store with the latest version of producer-core that uses it.",
        )


def _copy(connection: duckdb.DuckDBPyConnection, path: Path, *, now: float) -> None:
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS old (TYPE duckdb, READ_ONLY)")
    try:
        migrate(connection, now=now)
        for table in _tables(connection):
            connection.execute(f'DELETE FROM "{table}"')
            connection.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM old."{table}"')
    finally:
        connection.execute("DETACH old")


def _tables(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    found = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'old'"
    ).fetchall()
    return iter(sorted((name for (name,) in found), key=lambda name: (name in _LAST, name)))


def _store_error(error: Exception, path: Path) -> Exception:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return file_errors.from_system(error, path)
    return file_errors.from_duckdb(cast("duckdb.Error", error), path)

"""The compacting of a store: its file written anew, with nothing in it but what the tables hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from producer_core.errors import StoreFull
from producer_core.store import file_errors, paths
from producer_core.store.connection_pool import ConnectionPool
from producer_core.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAIT = 60.0

_LAST = ("dead_letter_counts",)
"""Written after the others: triggers of theirs write it as well."""


def compact(lender: ConnectionPool, path: Path, *, now: float) -> int:
    """Replace the file by a copy without the room of deleted rows; the bytes it became smaller.

    Everyone else waits meanwhile. The copy is whole and on the disk before it takes the old file's place; a process
    killed before that leaves the old one as it was.
    """
    with lender.alone(timeout=_WAIT):
        before = path.stat().st_size
        try:
            _empty_log(lender, path)
            draft = paths.clean_draft(path)
            with lender.attached(draft, write=True) as connection:
                _copy(connection, path, now=now)
            paths.publish_whole(draft, path)
        except (OSError, duckdb.Error) as error:
            path.with_name(path.name + ".new").unlink(missing_ok=True)
            raise _fault(error, path) from error
        return before - path.stat().st_size


def _empty_log(lender: ConnectionPool, path: Path) -> None:
    """What a crash left in the write-ahead log must be in the file before it is copied."""
    with lender.attached(path, write=True):
        pass
    if path.with_name(path.name + ".wal").exists():
        raise StoreFull(f"The write-ahead log of {path} could not be written into it.", fix="Free some disk.")


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


def _fault(error: Exception, path: Path) -> Exception:
    return (
        file_errors.from_system(error, path)
        if isinstance(error, OSError)
        else file_errors.from_duckdb(error, path)
    )

"""Describe a store's content: row counts, size and time range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from producer_core.store import paths
from producer_core.store.migrate import MIGRATION_RECORDS, version_of
from producer_core.store.retention import Retention


@dataclass(frozen=True)
class StoreInfo:
    """The content of a store. `oldest` and `newest` are window starts of statistics, None without statistics."""

    path: Path
    bytes: int
    schema_version: int
    rows: Mapping[str, int]
    oldest: int | None
    newest: int | None
    retention: Retention
    network_file_system: str | None


def describe(connection: duckdb.DuckDBPyConnection, path: Path, keep: Retention) -> StoreInfo:
    """Return the store's content. DuckDB maintains row counts, so this is fast at any size."""
    span = connection.execute("SELECT min(window_start), max(window_start) FROM statistics").fetchone()
    oldest, newest = span or (None, None)
    return StoreInfo(
        path=path,
        bytes=path.stat().st_size,
        schema_version=version_of(connection),
        rows={name: _count(connection, name) for name in _tables(connection)},
        oldest=oldest,
        newest=newest,
        retention=keep,
        network_file_system=paths.network_file_system(path),
    )


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    found = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() ORDER BY table_name"
    )
    return [name for (name,) in found.fetchall() if name not in MIGRATION_RECORDS]


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0

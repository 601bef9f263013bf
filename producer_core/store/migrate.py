"""Apply schema migrations: numbered SQL files, each recorded in the same transaction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import duckdb

from producer_core.errors import StoreTooNew, StoreUnavailable
from producer_core.store.file_errors import CHOOSE_PATH

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")

LAST_REQUIRED = 11
"""The last migration that a version must know to open the store. Later ones are additive: a version that lacks them reads
the store and adds statistics and dead letters. docs/development/invariants.md has the rules."""

_RECORDS = """
CREATE TABLE IF NOT EXISTS {} (
    version INTEGER PRIMARY KEY, name VARCHAR NOT NULL, applied_at DOUBLE NOT NULL
)"""
MIGRATION_RECORDS = _REQUIRED, _ADDITIVE = "schema_migrations", "additive_migrations"
"""The records of migrations: of those up to LAST_REQUIRED, and of later ones. Earlier versions read the first table only, and
refuse a store if it has a number that they do not know."""


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Return the migrations of this version, in order."""
    found = [
        Migration(int(match[1]), match[2], file.read_text())
        for file in files("producer_core.store").joinpath("sql").iterdir()
        if (match := _FILE.match(file.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


def newest() -> int:
    """Return the schema version of an up-to-date store."""
    return migrations()[-1].version


def version_of(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the schema version of a borrowed store, with additive migrations; 0 if it is empty."""
    records = _tables(connection).intersection(MIGRATION_RECORDS)
    return max((_latest(connection, table) for table in records), default=0)


def check(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Return the schema version. Raise StoreTooNew if the store has a migration that this version lacks and that is not
    additive, StoreUnavailable for another program's file."""
    version = version_of(connection)
    if version > 0 and (required := _latest(connection, _REQUIRED)) > LAST_REQUIRED:
        raise StoreTooNew(
            f"The store {path} has schema version {required}, but this producer_core supports only up to "
            f"{LAST_REQUIRED}, and additive changes; nothing was changed.",
            fix=f"Upgrade producer-core, or choose another store: {CHOOSE_PATH}.",
        )
    if version == 0 and (others := _tables(connection)):
        raise StoreUnavailable(
            f"The DuckDB file {path} contains other tables ({', '.join(sorted(others)[:3])}); nothing was changed.",
            fix=f"Choose another path: {CHOOSE_PATH}.",
        )
    return version


def migrate(connection: duckdb.DuckDBPyConnection, *, now: float) -> list[int]:
    """Apply missing migrations within the caller's transaction; return their versions."""
    for table in (_REQUIRED, _ADDITIVE):
        connection.execute(_RECORDS.format(table))
    present = version_of(connection)
    missing = [migration for migration in migrations() if migration.version > present]
    for migration in missing:
        table = _REQUIRED if migration.version <= LAST_REQUIRED else _ADDITIVE
        connection.execute(migration.sql)
        connection.execute(
            f"INSERT INTO {table} (version, name, applied_at) VALUES (?, ?, ?)",
            [migration.version, migration.name, now],
        )
    return [migration.version for migration in missing]


def _latest(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    row = connection.execute(f"SELECT coalesce(max(version), 0) FROM {table}").fetchone()
    return int(row[0]) if row else 0


def _tables(connection: duckdb.DuckDBPyConnection) -> set[str]:
    found = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
    )
    return {name for (name,) in found.fetchall()}

"""Build the store of a bundle: a new file with the schema of this version, and the rows of the bundle.

Nothing of the sender is read as a database. Counts and settings that change what a page does come from this version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import orjson

from producer_core.diagnostics.incident import facts, rows
from producer_core.diagnostics.incident.archive import BundleArchive
from producer_core.errors import ConfigError, TransferError
from producer_core.store import Store, file_errors, setting_values
from producer_core.store.connection_pool import ConnectionPool
from producer_core.store.merge import insert

_WAIT = 60.0
_CONFLICTS = (duckdb.ConstraintException, duckdb.ConversionException, duckdb.DataError)


def build_store(target: Path, archive: BundleArchive) -> None:
    """Write a read-only store to `target` from the rows of a bundle. Raise TransferError for rows that are not valid."""
    Store.open(target).close()
    pool = ConnectionPool(target)
    try:
        with pool.alone(timeout=_WAIT), pool.attached(target, write=True) as connection:
            _write(connection, archive)
    except _CONFLICTS as error:
        raise TransferError(
            f"{archive.path} was not opened: its rows contradict each other.",
            fix="Copy it again from a source that you trust.",
        ) from error
    except duckdb.Error as error:
        raise file_errors.from_duckdb(error, target) from error
    finally:
        pool.close()


def _write(connection: duckdb.DuckDBPyConnection, archive: BundleArchive) -> None:
    written = ""
    connection.begin()
    for table, names, found in archive.rows():
        if table != written:  # one transaction per table: one for all of them would stay in memory
            connection.commit()
            connection.begin()
            written = table
        if table == "settings":
            found = [row for row in found if _is_valid_setting(dict(zip(names, row, strict=True)))]
        insert(connection, f'"{table}"', _quoted(names), found)
    connection.execute(rows.COUNTS)
    facts.make_read_only(connection, archive.manifest)
    connection.commit()


def _is_valid_setting(setting: Mapping[str, Any]) -> bool:
    """Whether a setting is one of a bundle. Other ones, such as addresses, are ignored."""
    name = setting.get("name", "")
    try:
        setting_values.check({name: orjson.loads(setting.get("value", ""))})
    except (ConfigError, ValueError):
        return False
    return name in rows.SETTINGS


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in names]

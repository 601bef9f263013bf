"""Check that the store of a bundle contains tables only.

A view or a macro of a DuckDB file is code: a query of this product would run it, and it could read files of this machine.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from producer_core.diagnostics.incident.facts import SETTING
from producer_core.diagnostics.incident.rows import LEFT_OUT, ROWS
from producer_core.errors import TransferError
from producer_core.store import file_errors, paths, required_features
from producer_core.store.duckdb_instance import create_instance
from producer_core.store.migrate import check, newest

if TYPE_CHECKING:
    from collections.abc import Iterator

_VIEW = "message_statistics"
"""The view for users' own queries. No query of this product uses it."""
_FUNCTIONS = "SELECT count(*) FROM duckdb_functions() WHERE database_name = 'store' AND NOT internal"
_VIEWS = "SELECT view_name FROM duckdb_views() WHERE database_name = 'store' AND NOT internal"
_SCHEMAS = "SELECT count(*) FROM duckdb_schemas() WHERE database_name = 'store' AND NOT internal AND schema_name <> 'main'"
_TABLES = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'store'"
_MARKS = "SELECT (SELECT count(*) FROM required_features WHERE feature = ?), (SELECT count(*) FROM settings WHERE name = ?)"


def check_content(path: Path, name: str) -> None:
    """Raise TransferError unless the file is the store of a bundle, StoreTooNew for a later schema."""
    paths.check_file(path)
    with _read_only(path) as connection:
        version = check(connection, path)
        tables = {table for (table,) in connection.execute(_TABLES).fetchall()}
        views = {view for (view,) in connection.execute(_VIEWS).fetchall()}
        others = [connection.execute(sql).fetchall()[0][0] for sql in (_FUNCTIONS, _SCHEMAS)]
        if any(others) or views - {_VIEW} or (version >= newest() and not {*ROWS} <= tables):
            raise _unexpected(name)
        marks = connection.execute(_MARKS, [required_features.INCIDENT, SETTING]).fetchall()
        if marks != [(1, 1)]:
            raise _unexpected(name)


@contextlib.contextmanager
def _read_only(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    instance = create_instance(path)
    quoted = str(path).replace("'", "''")
    try:
        instance.execute(f"ATTACH '{quoted}' AS store (TYPE duckdb, READ_ONLY)")
        instance.execute("USE store")
        yield instance
    except duckdb.Error as error:
        raise file_errors.from_duckdb(error, path) from error
    finally:
        instance.close()


def _unexpected(name: str) -> TransferError:
    return TransferError(
        f"{name} was not opened: its store has unexpected content.",
        fix="Copy it again from a source that you trust.",
    )


KNOWN_TABLES = frozenset(ROWS) | LEFT_OUT
"""All tables of a store. A test compares them with the schema, so that a new table is not forgotten."""

"""Rows by their message ids, in the form in which DuckDB uses its index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_AT_ONCE = 2000
"""Ids written out in one statement; beyond that DuckDB reads the whole column, which is then the quicker way."""


_FEW = 100
"""Ids that are always looked up in the index: to ask how large the table is would cost as much."""

_ROWS_AN_ID = 500
"""Rows of a table whose ids are read in the time in which the index finds one (70 ns and 45 us were measured)."""

_SIZE = (
    "SELECT estimated_size FROM duckdb_tables() WHERE database_name = current_database() AND table_name = ?"
)

_MORE = 10
"""Times as many rows as ids, which are never there: a limit tells DuckDB that few come of the list. Without one it
expects a fifth of the table, and a page of a hundred ids among ten million dead letters took seven seconds."""


LISTED = "message_id IN (SELECT unnest(?))"


def among(ids: Sequence[str], table: str = "dead_letters") -> tuple[str, list[Any]]:
    """The condition for exactly these ids, and its parameters, of a table in which an id has ten rows at most.

    Through row ids, because a second condition beside the list would keep DuckDB from using the index.
    """
    if not ids:
        return "false", []
    if len(ids) <= _AT_ONCE:
        listed = f"message_id IN ({', '.join('?' * len(ids))})"
        return f"rowid IN (SELECT rowid FROM {table} WHERE {listed} LIMIT {_MORE * len(ids)})", list(ids)
    return LISTED, [list(ids)]


def fetch(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The named columns of a table's rows with these ids, by id."""
    named = (dict(zip(columns, row, strict=True)) for row in fetch_rows(connection, table, columns, ids))
    return {row["message_id"]: row for row in named}


def fetch_rows(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[str],
    ids: Sequence[str],
    condition: str = "true",
    given: Sequence[Any] = (),
) -> list[tuple[Any, ...]]:
    """The named columns of a table's rows with these ids, each row once; of those that meet the condition."""
    found: list[tuple[Any, ...]] = []
    ids = list(dict.fromkeys(ids))
    whole = reads_whole(connection, table, len(ids))
    for some in [ids] if whole else _chunks(ids):
        listed, parameters = (LISTED, [list(some)]) if whole else among(some, table)
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE ({listed}) AND ({condition})"
        found += connection.execute(sql, [*parameters, *given]).fetchall()
    return found


def forget(connection: duckdb.DuckDBPyConnection, table: str, ids: Sequence[str]) -> None:
    """Delete a table's rows with these ids."""
    for some in _chunks(ids):
        condition, parameters = among(some, table)
        connection.execute(f"DELETE FROM {table} WHERE {condition}", parameters)


def reads_whole(connection: duckdb.DuckDBPyConnection, table: str, count: int) -> bool:
    """Whether one read of the whole column is quicker than the index for so many ids."""
    if count < _FEW:
        return False
    row = connection.execute(_SIZE, [table]).fetchone()
    return row is not None and int(row[0]) < _ROWS_AN_ID * count


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(ids), _AT_ONCE):
        yield ids[first : first + _AT_ONCE]

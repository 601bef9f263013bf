"""The counts of dead letters by hour: the differences that triggers write, added up now and then; and how to change
many dead letters without the triggers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_SOME = 5_000
"""Differences that are not worth adding up yet."""

_DUE = """
SELECT count(*) FILTER (NOT added) > ? + count(*) FILTER (added) / 10 FROM dead_letter_counts"""

_KEYS = "hour, cluster_id, topic, state, verdict, kind, code, fingerprint"
_TOUCHED = "hour IN (SELECT hour FROM dead_letter_counts WHERE NOT added)"
_SUMMED = f"""
CREATE OR REPLACE TEMP TABLE summed_counts AS
SELECT {_KEYS}, sum(n)::BIGINT AS n, true AS added FROM dead_letter_counts
WHERE {_TOUCHED} GROUP BY {_KEYS} HAVING sum(n) <> 0"""

_FEW = 400
"""Letters that are left to the trigger: to do without it costs 10 ms."""
_TRIGGER = "dead_letters_changed"
_ITS_SQL = "SELECT sql FROM duckdb_triggers() WHERE database_name = current_database() AND trigger_name = ?"
_COUNTED = f"""
SELECT floor(failed_at / 3600)::BIGINT AS {_KEYS}, count(*) AS n FROM dead_letters
WHERE rowid IN ({{places}}) GROUP BY ALL"""
_DIFFERENCES = f"""
INSERT INTO dead_letter_counts
SELECT {_KEYS}, sum(n)::BIGINT, false
FROM (SELECT * REPLACE (-n AS n) FROM counts_before UNION ALL {{counted}})
GROUP BY {_KEYS} HAVING sum(n) <> 0"""


@contextmanager
def in_place(connection: duckdb.DuckDBPyConnection, places: str) -> Iterator[None]:
    """A block, within the caller's write transaction, that updates no other dead letters than those with the row ids that
    the question `places` (SQL) gives; the counts are kept true by looking before and after.

    With a trigger, DuckDB deletes each changed row and writes it anew, whole, with its entry in the index: 25
    microseconds of the processor a dead letter, instead of 2. So for more than a few the trigger is gone inside the block, and
    back at its end; an error rolls all of it back.
    """
    if count_of(connection, f"({places})") <= _FEW:
        yield
        return
    counted = _COUNTED.format(places=places)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE counts_before AS {counted}")
    trigger = _one(connection, _ITS_SQL, [_TRIGGER])
    connection.execute(f"DROP TRIGGER {_TRIGGER} ON dead_letters")
    yield
    connection.execute(trigger)
    connection.execute(_DIFFERENCES.format(counted=counted))
    connection.execute("DROP TABLE counts_before")


def count_of(connection: duckdb.DuckDBPyConnection, rows: str) -> int:
    """How many rows a table, or a question in brackets, has."""
    return int(_one(connection, f"SELECT count(*) FROM {rows}"))


def _one(connection: duckdb.DuckDBPyConnection, sql: str, given: Sequence[Any] = ()) -> Any:
    ((value,),) = connection.execute(sql, list(given)).fetchall()
    return value


def add_up_due(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether many differences wait."""
    row = connection.execute(_DUE, [_SOME]).fetchone()
    return bool(row and row[0])


def add_up(connection: duckdb.DuckDBPyConnection) -> None:
    """One row for equal ones, in the hours that changed, within the caller's transaction; every sum stays."""
    connection.execute(_SUMMED)
    connection.execute(f"DELETE FROM dead_letter_counts WHERE {_TOUCHED}")
    connection.execute("INSERT INTO dead_letter_counts SELECT * FROM summed_counts ORDER BY hour")
    connection.execute("DROP TABLE summed_counts")

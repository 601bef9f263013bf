"""The counts of dead letters by hour: the differences that triggers write, added up now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

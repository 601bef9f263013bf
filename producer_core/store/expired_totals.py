"""Keep the sums of statistics that retention deletes, so that totals never fall."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.metrics.batch import KINDS

if TYPE_CHECKING:
    import duckdb


def add(connection: duckdb.DuckDBPyConnection, table: str, before: float) -> None:
    """Add the rows of a table that start before a time to its totals, within the transaction that deletes them.

    `expired_{table}` keeps one row for each key without the producer, so its size does not grow with time.
    """
    kind = KINDS[table]
    keys = ", ".join(name for name in kind.key_columns if name != "producer_id")
    values = ", ".join(kind.sums)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE expired_sums AS "
        f"SELECT min(first_window) AS first_window, {keys}, {', '.join(f'sum({name}) AS {name}' for name in kind.sums)} "
        f"FROM (SELECT first_window, {keys}, {values} FROM expired_{table} "
        f"UNION ALL SELECT window_start, {keys}, {values} FROM {table} WHERE window_start < $before) GROUP BY {keys}",
        {"before": before},
    )
    connection.execute(f"DELETE FROM expired_{table}")
    connection.execute(f"INSERT INTO expired_{table} BY NAME SELECT * FROM expired_sums")
    connection.execute("DROP TABLE expired_sums")

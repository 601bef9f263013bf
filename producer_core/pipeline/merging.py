"""The merge of a micro-batch into a store: one transaction, under two keys, so that nothing counts twice.

(query, micro-batch) covers Spark's own repeats after a crash; (producer, sequence) covers a recorder's repeats
and a lost checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from producer_core.store import ProducerRow
from producer_core.store.batch import KINDS

if TYPE_CHECKING:
    from producer_core.store import Store

_UNSEEN = """
SELECT DISTINCT ids.producer_id, ids.sequence FROM ids
WHERE NOT EXISTS (SELECT 1 FROM merged_batches AS known
                  WHERE known.producer_id = ids.producer_id
                    AND ids.sequence BETWEEN known.first_batch AND known.last_batch)"""

_FRESH = f"CREATE OR REPLACE TEMP TABLE fresh AS {_UNSEEN}"

_ADD = """
INSERT INTO {table} (resolution, {columns})
SELECT 1, {columns} FROM {table}_rows
SEMI JOIN fresh ON fresh.producer_id = batch_producer AND fresh.sequence = batch_sequence"""

# Islands of consecutive numbers become ranges, so that what is remembered does not grow with time.
_RANGES = """
CREATE OR REPLACE TEMP TABLE ranges AS
WITH every AS (
    SELECT producer_id, first_batch, last_batch FROM merged_batches
    WHERE producer_id IN (SELECT producer_id FROM fresh)
    UNION ALL SELECT producer_id, sequence, sequence FROM fresh),
marked AS (
    SELECT *, first_batch > 1 + max(last_batch) OVER (
        PARTITION BY producer_id ORDER BY first_batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS apart
    FROM every),
numbered AS (
    SELECT *, count(*) FILTER (WHERE coalesce(apart, true)) OVER (
        PARTITION BY producer_id ORDER BY first_batch) AS island
    FROM marked)
SELECT producer_id, min(first_batch) AS first_batch, max(last_batch) AS last_batch
FROM numbered GROUP BY producer_id, island"""

_HEARTBEAT = f"""
INSERT INTO producers ({", ".join(ProducerRow._fields)})
SELECT {", ".join(ProducerRow._fields)} FROM producers_rows
ON CONFLICT (producer_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in ProducerRow._fields[1:])}
WHERE excluded.seen_at >= producers.seen_at"""


def merge(store: Store, tables: Mapping[str, Any], *, query_id: str, batch_id: int, now: float) -> int:
    """Add what the store does not have; the number of recorder batches added. `tables` are Arrow tables."""
    with store.borrow(write=True, timeout=60) as connection:
        if _committed(connection, query_id, batch_id):
            return 0
        with _registered(
            connection, {name if name == "ids" else f"{name}_rows": table for name, table in tables.items()}
        ):
            return _merge(connection, [name for name in KINDS if name in tables], query_id, batch_id, now)


def committed(store: Store, *, query_id: str, batch_id: int) -> bool:
    """Whether this micro-batch is in the store already."""
    with store.borrow(timeout=60, limit=10) as connection:
        return _committed(connection, query_id, batch_id)


def unseen(store: Store, ids: Any) -> Any:
    """Those of `ids` (producer_id, sequence) that the store has not merged yet, as an Arrow table."""
    with store.borrow(timeout=60, limit=10) as connection:
        with _registered(connection, {"ids": ids}):
            return connection.sql(_UNSEEN).to_arrow_table()


@contextmanager
def _registered(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Any]) -> Iterator[None]:
    """Arrow tables under these names for a while."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            with suppress(
                duckdb.Error
            ):  # a failed transaction refuses this too, and would hide why it failed
                connection.unregister(name)


def _merge(
    connection: duckdb.DuckDBPyConnection, kinds: Sequence[str], query_id: str, batch_id: int, now: float
) -> int:
    connection.execute(_FRESH)
    for table in kinds:
        connection.execute(_ADD.format(table=table, columns=", ".join(KINDS[table].columns)))
    connection.execute(_RANGES)
    connection.execute("DELETE FROM merged_batches WHERE producer_id IN (SELECT producer_id FROM fresh)")
    connection.execute("INSERT INTO merged_batches SELECT producer_id, first_batch, last_batch FROM ranges")
    connection.execute(_HEARTBEAT)
    connection.execute("INSERT INTO pipeline_progress VALUES (?, ?, ?)", [query_id, batch_id, now])
    count = connection.execute("SELECT count(*) FROM fresh").fetchone()
    connection.execute("DROP TABLE fresh")
    connection.execute("DROP TABLE ranges")
    return int(count[0]) if count else 0


def _committed(connection: duckdb.DuckDBPyConnection, query_id: str, batch_id: int) -> bool:
    asked = "SELECT 1 FROM pipeline_progress WHERE query_id = ? AND batch_id = ?"
    return connection.execute(asked, [query_id, batch_id]).fetchone() is not None

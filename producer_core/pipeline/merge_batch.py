"""Merge a micro-batch into a store in one transaction, under two keys, so that nothing is counted twice.

(producer, sequence) decides what is added: it covers a recorder's repeats, a lost checkpoint, and every crash. A
batch covers all numbers from its `first` to its sequence. The reader's position is recorded in the same transaction:
(query, micro-batch) by Spark, offsets by `collected_offsets.py`. It does not suffice alone: a checkpoint that was
restored from a copy uses the same numbers again for other records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from producer_core.metrics.batch import KINDS
from producer_core.store import ProducerRow

if TYPE_CHECKING:
    from producer_core.store import Store

_WAIT = 60.0
_LIMIT = 30.0
_KEPT = 1_000
"""Micro-batches of a query that are kept; Spark repeats at most the last one."""

_SEEN = """SELECT 1 FROM merged_batches AS known WHERE known.producer_id = given.producer_id
AND given.sequence BETWEEN known.first_batch AND known.last_batch"""

_UNSEEN = f"SELECT min(place) FROM given WHERE NOT EXISTS ({_SEEN}) GROUP BY producer_id, sequence ORDER BY 1"

_UNSEEN_COUNT = f"SELECT count(*) FROM given WHERE NOT EXISTS ({_SEEN})"

# Islands of consecutive numbers become ranges, so that the table does not grow with time.
_RANGES = """
CREATE OR REPLACE TEMP TABLE ranges AS
WITH every AS (
    SELECT producer_id, first_batch, last_batch FROM merged_batches
    WHERE producer_id IN (SELECT producer_id FROM given)
    UNION ALL SELECT producer_id, first, sequence FROM given),
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

# As in store/merge.py: a late batch has no newer heartbeat, and the producer's clock may have been set back.
_HEARTBEAT = f"""
INSERT INTO producers ({", ".join(ProducerRow._fields)})
SELECT batch_producer, {", ".join(f"heartbeat.{name}" for name in ProducerRow._fields[1:])}
FROM given_producer AS heartbeat
SEMI JOIN (SELECT batch_producer, max(batch_sequence) AS batch_sequence FROM given_producer GROUP BY ALL) AS newest
USING (batch_producer, batch_sequence)
WHERE NOT EXISTS (SELECT 1 FROM merged_batches AS known
                  WHERE known.producer_id = batch_producer AND known.last_batch > batch_sequence)
ON CONFLICT (producer_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in ProducerRow._fields[1:])}"""

_MISSING = """
SELECT count(*) FILTER (holes > 0)::BIGINT, coalesce(sum(holes), 0)::BIGINT
FROM (SELECT max(last_batch) - min(first_batch) + 1 - sum(last_batch - first_batch + 1) AS holes
      FROM merged_batches GROUP BY producer_id)"""

_THROUGH = "SELECT coalesce(max(batch_id), -1) FROM pipeline_progress WHERE query_id = ?"


RecordPosition = Callable[[duckdb.DuckDBPyConnection], None]
"""Records within the transaction how far the reader has come."""


class SupersededBatch(Exception):
    """Another job has merged some of the batches; call `unseen` again."""


def unseen(store: Store, batches: Any) -> Any:
    """Return those of `batches` (an Arrow table of `columns.to_table`) that the store has not merged yet, each once."""
    import pyarrow as pa

    keys = batches.select(["producer_id", "sequence"])
    keys = keys.append_column("place", pa.array(range(keys.num_rows), pa.int64()))
    with store.borrow(timeout=_WAIT, limit=_LIMIT) as connection, _given(connection, given=keys):
        places = connection.sql(_UNSEEN).to_arrow_table().column(0)
    return batches if len(places) == batches.num_rows else batches.take(places)


def merge(
    store: Store,
    fresh: Any,
    *,
    record: RecordPosition | None = None,
    reached: Callable[[str], None] = lambda point: None,
) -> int:
    """Add all of `fresh`, the result of `unseen`, and return their number.

    Raises SupersededBatch, and adds nothing, when the store has already merged some of its batches. `record` and then
    `reached` are called inside the transaction, before its end.
    """
    rows = _rows(fresh)
    with store.borrow(write=True, timeout=_WAIT) as connection, _given(connection, **rows):
        if fresh.num_rows:
            _merge(connection, rows, fresh.num_rows)
        if record is not None:
            record(connection)
        reached("in the transaction")
    return int(fresh.num_rows)


def _merge(connection: duckdb.DuckDBPyConnection, rows: Mapping[str, Any], count: int) -> None:
    if _count(connection, _UNSEEN_COUNT) != count:
        raise SupersededBatch
    for table, kind in KINDS.items():
        if rows[f"given_{table}"].num_rows:
            connection.execute(_add(table, kind.columns))
    connection.execute(_HEARTBEAT)
    connection.execute(_RANGES)
    connection.execute("DELETE FROM merged_batches WHERE producer_id IN (SELECT producer_id FROM given)")
    connection.execute("INSERT INTO merged_batches SELECT producer_id, first_batch, last_batch FROM ranges")
    connection.execute("DROP TABLE ranges")


def _rows(fresh: Any) -> dict[str, Any]:
    """Return the tables that the transaction reads, by name: the batches' numbers, the rows of each kind, the heartbeats.

    Nothing is copied: an Arrow table's lists of structs are columns already.
    """
    import pyarrow as pa
    from pyarrow import compute

    rows = {"given": fresh.select(["producer_id", "first", "sequence"])}
    for name in KINDS:
        rows[f"given_{name}"] = pa.Table.from_struct_array(compute.list_flatten(fresh[name]))
    with_heartbeat = fresh.filter(compute.is_valid(fresh["producer"]))
    heartbeats = pa.Table.from_struct_array(with_heartbeat["producer"])
    for name, column in (("batch_producer", "producer_id"), ("batch_sequence", "sequence")):
        heartbeats = heartbeats.append_column(name, with_heartbeat[column])
    return {**rows, "given_producer": heartbeats}


def merged_through(store: Store, query_id: str) -> int:
    """Return the last micro-batch of a query that the store has merged; -1 for an unknown query."""
    with store.borrow(timeout=_WAIT, limit=_LIMIT) as connection:
        found = connection.execute(_THROUGH, [query_id]).fetchone() or (-1,)
        return int(found[0])


def missing(store: Store) -> tuple[int, int]:
    """Return how many producers have gaps in their batch numbers, and how many batches are missing so far."""
    with store.borrow(timeout=_WAIT, limit=_LIMIT) as connection:
        found = connection.execute(_MISSING).fetchone() or (0, 0)
        return int(found[0]), int(found[1])


def _add(table: str, columns: tuple[str, ...]) -> str:
    names = ", ".join(columns)
    return f"INSERT INTO {table} (resolution, {names}) SELECT 1, {names} FROM given_{table}"


def record_micro_batch(
    connection: duckdb.DuckDBPyConnection, *, query_id: str, batch_id: int, now: float
) -> None:
    """Record that a query has merged a micro-batch."""
    connection.execute(
        "INSERT INTO pipeline_progress VALUES (?, ?, ?) "
        "ON CONFLICT (query_id, batch_id) DO UPDATE SET committed_at = excluded.committed_at",
        [query_id, batch_id, now],
    )
    if batch_id % _KEPT == 0:
        connection.execute(
            "DELETE FROM pipeline_progress WHERE query_id = ? AND batch_id < ?",
            [query_id, batch_id - _KEPT],
        )


@contextmanager
def _given(connection: duckdb.DuckDBPyConnection, **tables: Any) -> Iterator[None]:
    """Register Arrow tables under these names for the block."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            # a failed transaction refuses this too, which would hide its own error
            with suppress(duckdb.Error):
                connection.unregister(name)


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0

"""The ledger that a store keeps: its batches in the form of a topic's, which numbers it has, and what it had to leave out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core.ledger import GivenUpRow, LedgerRow
from producer_core.pipeline.integrity.ledgers import STORE
from producer_core.telemetry import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.store import Store

_SECONDS = 600
"""A ledger of a week is read whole; the store's usual bound of 2 s is for pages."""


@dataclass(frozen=True)
class Kept:
    """`batches` as `ledgers.parsed` has them; `stretches` of numbers that the store has of those producers; how many
    acknowledgements were left out because there was no room for them."""

    batches: DataFrame
    stretches: DataFrame
    left_out: int


def kept(session: SparkSession, store: Store | None) -> Kept:
    """What the store keeps; nothing without a store."""
    batches, stretches, left_out = _asked(store) if store is not None else (None, None, 0)
    return Kept(
        session.createDataFrame(_shaped(batches, _batches())),
        session.createDataFrame(_shaped(stretches, _stretches())),
        left_out,
    )


def _asked(store: Store) -> tuple[pyarrow.Table, pyarrow.Table, int]:
    with store.borrow(limit=_SECONDS) as connection:
        ((left_out,),) = connection.execute(_LEFT_OUT).fetchall()
        return connection.sql(_KEPT).to_arrow_table(), connection.sql(_HAS).to_arrow_table(), int(left_out)


def _shaped(table: pyarrow.Table | None, schema: pyarrow.Schema) -> pyarrow.Table:
    return table.cast(schema) if table is not None and table.num_rows else schema.empty_table()


def _batches() -> pyarrow.Schema:
    import pyarrow as pa

    rows = pa.list_(pa.list_(pa.string()))
    return pa.schema(
        [("source", pa.string()), ("position", pa.int64()), ("at", pa.float64()), ("v", pa.int32()),
         ("producer_id", pa.string()), ("sequence", pa.int64()), ("first", pa.int64()), ("cluster_id", pa.string()),
         ("ledger_lost", pa.int64()), ("ledger", rows), ("given_up", rows)]
    )  # fmt: skip


def _stretches() -> pyarrow.Schema:
    import pyarrow as pa

    return pa.schema([("producer_id", pa.string()), ("sequence", pa.int64()), ("first", pa.int64())])


def _texts(fields: tuple[str, ...], lists: tuple[str, ...] = ()) -> str:
    return ", ".join(f"to_json({name})::VARCHAR" if name in lists else f"{name}::VARCHAR" for name in fields)


_KEPT = f"""
WITH ledgers AS (
    SELECT producer_id, batch, cluster_id, max(written_at) AS written_at, list([{_texts(LedgerRow._fields, ("seqs", "offs"))}]) AS rows
    FROM ledger GROUP BY producer_id, batch, cluster_id),
letters AS (
    SELECT producer_id, batch, max(given_up_at) AS written_at, list([{_texts(GivenUpRow._fields)}]) AS rows
    FROM ledger_given_up GROUP BY producer_id, batch)
SELECT '{STORE}' AS source, floor(coalesce(ledgers.written_at, letters.written_at) * 1000)::BIGINT AS position,
       coalesce(ledgers.written_at, letters.written_at) AS "at", {SCHEMA_VERSION}::INTEGER AS v,
       producer_id, batch AS sequence, NULL::BIGINT AS first, cluster_id, NULL::BIGINT AS ledger_lost,
       ledgers.rows AS ledger, letters.rows AS given_up
FROM ledgers FULL JOIN letters USING (producer_id, batch)"""

# A store merges batches of producers whose ledger it does not keep, too; and forgets ledgers before it forgets notices.
_HAS = """
SELECT producer_id, last_batch AS sequence, first_batch AS first FROM merged_batches
WHERE producer_id IN (SELECT producer_id FROM ledger)"""
_LEFT_OUT = """
SELECT coalesce(sum(try_cast(details->>'acknowledgements' AS BIGINT)), 0) FROM notices
WHERE kind = 'ledger_lost' AND noticed_at >= coalesce((SELECT min(written_at) FROM ledger), 0)"""

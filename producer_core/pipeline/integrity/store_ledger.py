"""Read the ledger that a store keeps: its batches in the form of a topic's, their numbers, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from producer_core.metrics.ack_ledger import GivenUpRow, LedgerRow
from producer_core.metrics.telemetry import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow

    from producer_core.pipeline.integrity.audit_tables import AuditTables
    from producer_core.store import Store

STORE = "store"
"""The source of batches from a store."""

_QUERY_LIMIT = 120
"""Seconds for one slice; the store's usual limit of 2 s is for pages."""
_SLICE = 4_000_000
"""Acknowledgements per slice: about 20 MB in this process. Other processes wait for the store
no longer than one slice takes."""


def add_store_ledger(tables: AuditTables, store: Store | None, topic: str, cluster: str) -> int:
    """Add the store's batches about a topic as `slices` reads them, and the batch numbers of their producers.

    Return the number of acknowledgements for which the ledger had no room. The store is read one slice at a time.
    """
    if store is None:
        return 0
    tables.add("add_batches", slices(store, topic, cluster))
    with store.borrow(limit=_QUERY_LIMIT) as connection:
        ((left_out,),) = connection.execute(_LEFT_OUT).fetchall()
        numbers = connection.sql(_NUMBERS).to_arrow_table()
    tables.add("add_stored_numbers", [numbers])
    return int(left_out)


def slices(store: Store, topic: str, cluster: str, *, size: int = _SLICE) -> Iterator[pyarrow.Table]:
    """Yield the batches that cover the topic in this cluster, or may cover it, in the order of their merge.

    From other topics come only rows of windows that they share with several partitions of this topic, without offsets
    (see the rule `doubled`). A batch that was written before its producer knew its cluster gets the cluster id that the
    producer reported later. Each merge is in one slice, and the store is free between two slices.
    """
    about = {"topic": topic, "cluster": cluster}
    with store.borrow(limit=_QUERY_LIMIT) as connection:
        moments = connection.execute(_MOMENTS, {**about, "size": size}).fetchall()
    for first, last in moments:
        with store.borrow(limit=_QUERY_LIMIT) as connection:
            table = connection.sql(_KEPT, params={**about, "first": first, "last": last}).to_arrow_table()
        yield table


def _texts(fields: tuple[str, ...], lists: tuple[str, ...] = ()) -> str:
    return ", ".join(f"to_json({name})::VARCHAR" if name in lists else f"{name}::VARCHAR" for name in fields)


_WANTED = """
WITH located AS NOT MATERIALIZED (
    SELECT ledger.* REPLACE (coalesce(nullif(ledger.cluster_id, ''), producers.cluster_id, '') AS cluster_id)
    FROM ledger LEFT JOIN producers USING (producer_id)),
ours AS NOT MATERIALIZED (SELECT * FROM located WHERE topic = $topic AND ($cluster = '' OR cluster_id IN ('', $cluster))),
shared AS (SELECT session, first_window FROM ours GROUP BY ALL HAVING min(partition) <> max(partition)),
others AS NOT MATERIALIZED (
    SELECT * REPLACE (NULL AS fp, -1 AS off_min, -1 AS off_max, [] AS offs) FROM located
    WHERE topic <> $topic AND (session, first_window) IN (FROM shared)),
wanted AS NOT MATERIALIZED (FROM ours UNION ALL FROM others),
given AS (FROM ledger_given_up WHERE topic = $topic)"""

_MOMENTS = f"""{_WANTED},
merged AS (
    SELECT merged_at, sum(count) AS count
    FROM (SELECT merged_at, count FROM wanted UNION ALL SELECT merged_at, 1 FROM given) GROUP BY merged_at),
sliced AS (SELECT merged_at, sum(count) OVER (ORDER BY merged_at) // $size AS slice FROM merged)
SELECT min(merged_at), max(merged_at) FROM sliced GROUP BY slice ORDER BY slice"""

_KEPT = f"""{_WANTED},
ledgers AS (
    SELECT producer_id, batch, max(cluster_id) AS cluster_id, max(merged_at) AS merged_at, max(written_at) AS written_at,
           list([{_texts(LedgerRow._fields, ("seqs", "offs"))}]) AS rows
    FROM wanted WHERE merged_at BETWEEN $first AND $last GROUP BY producer_id, batch),
dead_letters AS (
    SELECT producer_id, batch, max(merged_at) AS merged_at, max(given_up_at) AS written_at,
           list([{_texts(GivenUpRow._fields)}]) AS rows
    FROM given WHERE merged_at BETWEEN $first AND $last GROUP BY producer_id, batch)
SELECT '{STORE}' AS source, floor(coalesce(ledgers.merged_at, dead_letters.merged_at) * 1000)::BIGINT AS position,
       coalesce(ledgers.written_at, dead_letters.written_at) AS "at", {SCHEMA_VERSION}::INTEGER AS v,
       producer_id, batch AS sequence, NULL::BIGINT AS first, cluster_id, NULL::BIGINT AS ledger_lost,
       ledgers.rows AS ledger, dead_letters.rows AS given_up
FROM ledgers FULL JOIN dead_letters USING (producer_id, batch)"""

# A store also merges batches of producers whose ledger it does not keep, and it prunes ledgers before notices.
_NUMBERS = """
SELECT producer_id, last_batch AS sequence, first_batch AS first FROM merged_batches
WHERE producer_id IN (SELECT producer_id FROM ledger)"""
_LEFT_OUT = """
SELECT coalesce(sum(try_cast(details->>'acknowledgements' AS BIGINT)), 0) FROM notices
WHERE kind = 'ledger_lost' AND noticed_at >= coalesce((SELECT min(written_at) FROM ledger), 0)"""

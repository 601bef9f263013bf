"""Settle a whole acknowledged batch of a replay: one join finds the records, one the dead letters."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq.claim_and_settle import locate_replaying
from producer_core.store import dead_letter_counts
from producer_core.store.queries import run

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_BATCH = "acknowledged_batch"


def settle_batch(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    records: RecordBatch,
    partitions: Sequence[int],
    offsets: Sequence[int],
    *,
    now: float,
) -> int:
    """Write that the broker acknowledged these records, each at its offset. Return the number that were claimed.

    A row id is valid for one transaction only. The one from the claim is therefore used only where it still has the
    message id; the other dead letters are looked up.
    """
    connection.register(_BATCH, _table(records, partitions, offsets))
    first, last = records.range
    run(connection, "replay_locate_batch_records", operation=operation_id, first=first, last=last)
    connection.unregister(_BATCH)
    count = dead_letter_counts.count_of(connection, "located")
    run(connection, "replay_locate_batch_dead_letters", operation=operation_id)
    if dead_letter_counts.count_of(connection, "settled") < count:
        locate_replaying(connection, operation_id)
    with dead_letter_counts.state_changed(
        connection, "SELECT dead_letter FROM settled", before="replaying", after="replayed"
    ):
        run(connection, "replay_settle_batch_dead_letters", now=now)
    run(connection, "replay_settle_batch_records", now=now)
    return count


def _table(records: RecordBatch, partitions: Sequence[int], offsets: Sequence[int]) -> object:
    import pyarrow as pa

    return (
        records.table.select(["message_id", "ord", "dead_letter"])
        .append_column("landed_partition", _column(pa.int32(), array("i", partitions)))
        .append_column("landed_offset", _column(pa.int64(), array("q", offsets)))
    )


def _column(kind: pyarrow.DataType, values: array[int]) -> pyarrow.Array:
    """Return the values as an Arrow array without a copy. `pyarrow.array` would import pandas, which takes half a second."""
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

"""Settle a whole acknowledged batch of a replay: one join finds the records, one the dead letters."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import replay_waves
from producer_core.dlq.replay_waves import Wave
from producer_core.store import dead_letter_counts
from producer_core.store.queries import run

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_BATCH = "acknowledged_batch"
_ROW_IDS = f"""
SELECT min(dead_letter), max(dead_letter), coalesce(bool_and(dead_letter > before), true)
FROM (SELECT dead_letter, lag(dead_letter) OVER () AS before FROM {_BATCH})"""
_IDS = "SELECT message_id FROM dead_letters WHERE rowid BETWEEN ? AND ? AND state = 'dead'"
_LOCATED = f"""
CREATE OR REPLACE TEMP TABLE settled AS SELECT landed_partition, landed_offset, dead_letter FROM {_BATCH}"""


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

    They were claimed as parts of open waves, or one by one. A row id is valid for one transaction only. The one from the
    claim is therefore used only where it still has the message id; the other dead letters are looked up.
    """
    connection.register(_BATCH, _table(records, partitions, offsets))
    try:
        waves = replay_waves.open_waves(connection, operation_id)
        if waves and _is_whole(connection, operation_id, records, waves):
            return _settle_range(connection, operation_id, records, now)
        return _settle_located(connection, operation_id, records, waves, now)
    finally:
        connection.unregister(_BATCH)


def _is_whole(
    connection: duckdb.DuckDBPyConnection, operation_id: str, records: RecordBatch, waves: Sequence[Wave]
) -> bool:
    """Whether the batch has all records of its range, each of them in an open wave with its dead letter where it was."""
    first, last = records.range
    if not (waves[0].first <= first and last <= waves[-1].last):
        return False
    numbers = {"operation": operation_id, "first": first, "last": last}
    ((count, *_),) = run(connection, "replay_wave_records", **numbers).fetchall()
    if count != len(records):
        return False
    if _are_in_order(connection, records):
        connection.execute(_LOCATED)
        return True
    run(connection, "replay_locate_wave_batch")
    return dead_letter_counts.count_of(connection, "settled") == len(records)


def _are_in_order(connection: duckdb.DuckDBPyConnection, records: RecordBatch) -> bool:
    """Whether the dead letters are still stored one after another in the order of the batch, which a scan of their ids shows
    in a fourth of the time of a join."""
    ((first, last, in_order),) = connection.execute(_ROW_IDS).fetchall()
    if not in_order or last - first + 1 != len(records):
        return False
    ids = connection.sql(_IDS, params=[first, last]).to_arrow_table()["message_id"]
    return bool(ids.equals(records.table["message_id"]))


def _settle_range(
    connection: duckdb.DuckDBPyConnection, operation_id: str, records: RecordBatch, now: float
) -> int:
    first, last = records.range
    with _counted(connection, len(records), len(records)):
        run(connection, "replay_settle_batch_dead_letters", operation=operation_id, now=now)
    run(connection, "replay_settle_wave_records", operation=operation_id, first=first, last=last, now=now)
    replay_waves.settled_up_to(connection, operation_id, last)
    return len(records)


def _settle_located(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    records: RecordBatch,
    waves: Sequence[Wave],
    now: float,
) -> int:
    """Settle the records of the batch that are claimed, each found by its number, and its dead letter by row id or id."""
    first, last = records.range
    run(
        connection, "replay_locate_batch_records", operation=operation_id, first=first, last=last,
        wave_first=waves[0].first if waves else 1, wave_last=waves[-1].last if waves else 0,
    )  # fmt: skip
    ((count, in_wave),) = connection.execute(
        "SELECT count(*), count(*) FILTER (in_wave) FROM located"
    ).fetchall()
    run(connection, "replay_locate_batch_dead_letters", operation=operation_id)
    if dead_letter_counts.count_of(connection, "settled") < count:
        run(connection, "replay_locate_moved_dead_letters", operation=operation_id)
    with _counted(connection, count, in_wave):
        run(connection, "replay_settle_batch_dead_letters", operation=operation_id, now=now)
    run(connection, "replay_settle_batch_records", now=now)
    if in_wave:
        replay_waves.settled_up_to(connection, operation_id, last)
    return int(count)


def _counted(
    connection: duckdb.DuckDBPyConnection, count: int, in_wave: int
) -> AbstractContextManager[object]:
    """Count the changes of a block that settles the located dead letters."""
    places = "SELECT dead_letter FROM settled"
    if 0 < in_wave < count:
        return dead_letter_counts.in_place(connection, places)
    before = "dead" if in_wave else "replaying"
    return dead_letter_counts.state_changed(connection, places, before=before, after="replayed")


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

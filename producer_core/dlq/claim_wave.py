"""Claim the next records of a replay as an open wave: one row claims them, and one join reads them as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any

from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import replay_waves
from producer_core.dlq.claim_position import ClaimPosition
from producer_core.dlq.codec import read_headers
from producer_core.dlq.lookup import prefers_full_scan
from producer_core.dlq.replay_waves import Wave
from producer_core.store.queries import run

if TYPE_CHECKING:
    import duckdb

_ALWAYS_SCANNED = 100
"""Fewer records are read by a scan of stores in which as many as these would be."""
CLAIMABLE = "replayable AND state = 'dead'"
_COLUMNS = """
SELECT records.message_id, dead_letters.topic, dead_letters.key, body.value, nullif(body.headers, '[]') AS headers,
       dead_letters.partition, body.timestamp_ms, dead_letters.accepted_at, dead_letters.verdict,
       dead_letters.verdict_reason,
       coalesce(octet_length(body.value), 0) + coalesce(octet_length(dead_letters.key), 0) AS size,
       records.ord, dead_letters.place AS dead_letter, body.place AS body
FROM (SELECT message_id, ord FROM operation_records
      WHERE operation_id = $operation AND state = 'pending' AND ord BETWEEN $first AND $last) AS records"""
"""The columns of a `RecordBatch`, without the records whose dead letter or body is not found."""
_DEAD_LETTERS = f"(SELECT *, rowid AS place FROM dead_letters WHERE {CLAIMABLE} AND {{}}) AS dead_letters"
_BODIES = "(SELECT *, rowid AS place FROM dead_letter_bodies WHERE {}) AS body"
_BY_ID = f"{_COLUMNS} JOIN {_DEAD_LETTERS} USING (message_id) JOIN {_BODIES} USING (message_id)"
_IN_ORDER = f"""{_COLUMNS} POSITIONAL JOIN {_DEAD_LETTERS} POSITIONAL JOIN {_BODIES}
WHERE dead_letters.message_id = records.message_id AND body.message_id = records.message_id"""
"""A third of the time: it finds a record only if its dead letter and its body are as far from the first as it is."""


def claim_wave(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition, limits: Mapping[str, Any], *, now: float
) -> RecordBatch | None:
    """Claim the next records within the limits, if all of them can be claimed and sent without a search, else None.

    The limits are those of `claim_next`. The wave ends before the first record that needs a search.
    """
    operation = limits["operation"]
    first = max(position.first, replay_waves.first_after(connection, operation))
    ((start,),) = run(connection, "replay_next_pending", operation=operation, first=first).fetchall()
    if start is None:
        return None
    last = _last_plain(connection, operation, Wave(start, start + limits["count"] - 1))
    count, last = _fitting(connection, Wave(start, last), limits)
    if not count:
        return None
    numbers = {"operation": operation, "first": start, "last": last}
    for sql in _likely_places(connection, position, count):
        batch = _read(connection, sql, numbers)
        if len(batch) == count:
            return _claimed(connection, position, _within(batch, limits), operation, now)
    return None


def _last_plain(connection: duckdb.DuckDBPyConnection, operation: str, wave: Wave) -> int:
    """Return the last number of the range before the first record that must be claimed alone."""
    last = wave.last
    while True:
        ((_, other),) = run(
            connection, "replay_wave_records", operation=operation, first=wave.first, last=last
        ).fetchall()
        if other is None:
            return last
        last = other - 1


def _fitting(connection: duckdb.DuckDBPyConnection, wave: Wave, limits: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many pending records of the range fit into the limit of bytes, and the number of the last one.

    Only these are read: all records of a range may be much larger than the limit.
    """
    ((count, last),) = run(
        connection, "replay_wave_fitting", operation=limits["operation"], first=wave.first, last=wave.last,
        max_bytes=limits["max_bytes"], allow_oversized=limits["allow_oversized"],
    ).fetchall()  # fmt: skip
    return count, last


def _claimed(
    connection: duckdb.DuckDBPyConnection,
    position: ClaimPosition,
    batch: RecordBatch,
    operation: str,
    now: float,
) -> RecordBatch | None:
    if not batch:
        return None
    for what in ("dead_letter", "body"):
        position.located(what, batch.range_of(what))
    position.claimed(batch.range[1])
    replay_waves.open_wave(connection, operation, Wave(*batch.range), now=now)
    return batch


def _within(batch: RecordBatch, limits: Mapping[str, Any]) -> RecordBatch:
    """Return the first records, up to the limit of bytes and before the first one that needs a search."""
    safe = batch if batch.is_safe else batch.safe_part()
    if safe.size <= limits["max_bytes"]:
        return safe
    fitting = sum(1 for _ in takewhile(lambda total: total <= limits["max_bytes"], accumulate(safe.sizes)))
    return safe[: max(fitting, int(limits["allow_oversized"]))]


def _likely_places(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition, count: int
) -> Iterator[str]:
    """Yield queries of the records, which find all of them if: their rows are the next ones in the same order, they are near
    the last claim, or (if a full scan is fast) they exist."""
    if position.in_order and (rows := position.next_rows(count)):
        yield _IN_ORDER.format(*map(_between, rows))
        position.in_order = False
    if near := position.likely_rows(count):
        yield _BY_ID.format(*map(_between, near))
    if prefers_full_scan(connection, "dead_letters", max(count, _ALWAYS_SCANNED)):
        yield _BY_ID.format("true", "true")


def _between(row_ids: tuple[int, int]) -> str:
    return f"rowid BETWEEN {row_ids[0]} AND {row_ids[1]}"


def _read(connection: duckdb.DuckDBPyConnection, sql: str, numbers: Mapping[str, Any]) -> RecordBatch:
    """Read the records, which are stored in about their order, so that they rarely need to be sorted."""
    batch = RecordBatch(connection.sql(sql, params=dict(numbers)).to_arrow_table(), read_headers)
    if batch.is_ordered:
        return batch
    ordered = connection.sql(f"{sql} ORDER BY records.ord", params=dict(numbers))
    return RecordBatch(ordered.to_arrow_table(), read_headers)

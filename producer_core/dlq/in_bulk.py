"""Thousands of letters and records changed at once, inside a write transaction: first found, then updated by row ids.

DuckDB changes rows in place that way. With RETURNING, or with a trigger, it deletes each row and writes it anew with its
entry in the index, which takes ten times as long. Row ids hold for the transaction only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from producer_core.dlq.by_id import LISTED, fetch_rows
from producer_core.store import counts
from producer_core.store.queries import query

if TYPE_CHECKING:
    import duckdb

_RECORD = "operation_id = ? AND state = ?"
_REPLAYED = "operation_id = ? AND state = 'replaying'"


def claim_letters(
    connection: duckdb.DuckDBPyConnection, operation_id: str, ids: Sequence[str], *, now: float
) -> list[str]:
    """Takes these letters for a replay: the ids, in their order, of those that were dead and can be replayed."""
    found = _found(connection, "dead_letters", ids, "replayable AND state = 'dead'", [])
    rows = list(found.values())
    with counts.in_place(connection, rows):
        _update(connection, "replay_claim_letters", rows=rows, operation=operation_id, now=now)
    return [message_id for message_id in ids if message_id in found]


def settle_letters(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    told: Sequence[tuple[Any, ...]],
    *,
    now: float,
    quarantine_after: int,
) -> None:
    """What became of letters that the replay has: id, state, partition, offset, whether it failed, verdict, reason."""
    if not told:
        return
    found = _found(connection, "dead_letters", [one[0] for one in told], _REPLAYED, [operation_id])
    if not (known := [(found[one[0]], *one[1:]) for one in told if one[0] in found]):
        return
    rows, states, partitions, offsets, failed, verdicts, reasons = map(list, zip(*known, strict=True))
    with counts.in_place(connection, rows):
        _update(
            connection, "replay_settle_letters", rows=rows, states=states, partitions=partitions, offsets=offsets,
            failed=failed, verdicts=verdicts, reasons=reasons, now=now, quarantine_after=quarantine_after,
        )  # fmt: skip


def move_records(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    before: str,
    moves: Sequence[tuple[str, str, str | None]],
    *,
    now: float,
) -> set[str]:
    """Moves records (message id, new state, text) that are in the state `before`; the ids of those that were."""
    if not moves:
        return set()
    found = _found_records(connection, [one[0] for one in moves], [operation_id, before])
    if known := [
        (found[message_id], state, text) for message_id, state, text in moves if message_id in found
    ]:
        rows, states, texts = map(list, zip(*known, strict=True))
        _update(connection, "replay_move_records", rows=rows, states=states, texts=texts, now=now)
    return {*found}


def _found(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    ids: Sequence[str],
    condition: str,
    given: Sequence[Any],
) -> dict[str, int]:
    """By message id: the row id of those that meet the condition."""
    return dict(fetch_rows(connection, table, ("message_id", "rowid"), ids, condition, given))


def _found_records(
    connection: duckdb.DuckDBPyConnection, ids: Sequence[str], given: Sequence[Any]
) -> dict[str, int]:
    """The same of records. A letter has one in each of its replays, so the index's limit (`by_id`) may hide ours behind
    those of others: what it did not find is looked for in the whole column."""
    found = _found(connection, "operation_records", ids, _RECORD, given)
    if missing := [message_id for message_id in ids if message_id not in found]:
        sql = f"SELECT message_id, rowid FROM operation_records WHERE {LISTED} AND {_RECORD}"
        found |= dict(connection.execute(sql, [missing, *given]).fetchall())
    return found


def _update(connection: duckdb.DuckDBPyConnection, name: str, **given: Any) -> None:
    asked = query(name)
    connection.execute(asked.sql, asked.bind(given))

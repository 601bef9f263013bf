"""Thousands of dead letters and records changed at once, inside a write transaction: first found, then updated by row ids.

DuckDB changes rows in place that way. With RETURNING, or with a trigger, it deletes each row and writes it anew with its
entry in the index, which takes ten times as long. What is found stays in temporary tables: a join of two tables takes a
fifth of the time that a list of ids does. Row ids hold for the transaction only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.dlq.codec import read_headers
from producer_core.dlq.lookup import LISTED, fetch_rows, reads_whole
from producer_core.store import dead_letter_counts
from producer_core.store.queries import query, run

if TYPE_CHECKING:
    import duckdb

_WAVE = {"message_id": "VARCHAR", "ord": "BIGINT"}
_TOLD = {
    "message_id": "VARCHAR", "ending": "VARCHAR", "text": "VARCHAR", "landed_partition": "INTEGER",
    "landed_offset": "BIGINT", "verdict": "VARCHAR",
}  # fmt: skip
_PLACED = {"record": "operation_records", "letter": "dead_letters", "body": "dead_letter_bodies"}
_LETTERS = """
SELECT placed.message_id, letters.topic, letters.key, body.value, nullif(body.headers, '[]') AS headers,
       letters.partition, body.timestamp_ms, letters.accepted_at, letters.verdict, letters.verdict_reason
FROM placed JOIN dead_letters AS letters ON letters.rowid = placed.letter
LEFT JOIN (SELECT letter, bodies.* FROM embodied JOIN dead_letter_bodies AS bodies ON bodies.rowid = embodied.body)
     AS body ON body.letter = placed.letter
ORDER BY placed.ord"""
"""The columns of a `burial.Letter`, in order. A LEFT JOIN with the bodies themselves would read every one of them."""
_NOT_PLACED = "SELECT message_id FROM wave WHERE record NOT IN (SELECT record FROM placed) ORDER BY ord"
_RECORD = "operation_id = ? AND state = ?"
_REPLAYED = "operation_id = ? AND state = 'replaying'"
_DEAD = "replayable AND state = 'dead'"

_TOGETHER = 500

Row = tuple[Any, ...]


def claim_next(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    *,
    count: int,
    room: int,
    until: float,
    alone: bool,
    now: float,
) -> tuple[list[ReplayRecord], list[str]]:
    """Claims the next pending records of an operation, `count` at most: their dead letters, in their order; and the ids of
    records whose dead letters cannot be had.

    They end before `room` bytes are full, though one that is larger than that goes `alone`, and before one of which an
    old attempt may arrive after the moment `until`.
    """
    asked = query("replay_wave")
    given = {"operation": operation_id, "count": count, "room": room, "until": until, "alone": alone}
    connection.execute(f"CREATE OR REPLACE TEMP TABLE wave AS {asked.sql}", asked.bind(given))
    _place(connection, "letter", of="wave", where=_DEAD)
    dead_letters = _dead_letters(connection)  # before the change: it may move them
    _claim_placed(connection, operation_id, now)
    moved = run(connection, "replay_claim_records").fetchone()
    if moved is None or moved[0] != len(dead_letters):
        raise AssertionError("a dead letter would be sent whose record is not claimed")
    return dead_letters, [one for (one,) in connection.execute(_NOT_PLACED).fetchall()]


def dead_letters_of(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> list[ReplayRecord]:
    """Those of these that are there, in their order."""
    _place_ids(connection, ids)
    return _dead_letters(connection)


def claim_records(
    connection: duckdb.DuckDBPyConnection, operation_id: str, ids: Sequence[str], *, now: float
) -> list[str]:
    """Takes these dead letters for a replay: the ids, in their order, of those that were dead and can be replayed."""
    _place_ids(connection, ids, where=_DEAD)
    _claim_placed(connection, operation_id, now)
    return [one for (one,) in connection.execute("SELECT message_id FROM placed ORDER BY ord").fetchall()]


def settle(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    told: Sequence[Row],
    *,
    now: float,
    quarantine_after: int,
) -> set[str]:
    """What became of claimed records, and with them of their dead letters; the ids of those that were claimed.

    Of each told: message id, ending, text, partition, offset, verdict; what follows is not read.
    """
    moved = end_records(connection, operation_id, "claimed", told, now=now)
    _place(connection, "letter", of="placed", into="settled", where=_REPLAYED, given=[operation_id])
    with dead_letter_counts.in_place(connection, "SELECT letter FROM settled"):
        run(connection, "replay_settle_letters", now=now, quarantine_after=quarantine_after)
    return moved


def end_records(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    before: str,
    told: Sequence[Row],
    *,
    now: float,
) -> set[str]:
    """The same of records that are in the state `before`, and of no letters."""
    _give(connection, "told", _TOLD, told)
    _place(connection, "record", of="told", where=_RECORD, given=[operation_id, before])
    run(connection, "replay_end_records", now=now)
    return {one for (one,) in connection.execute("SELECT message_id FROM placed").fetchall()}


def _place_ids(connection: duckdb.DuckDBPyConnection, ids: Sequence[str], *, where: str = "true") -> None:
    """Their dead letters, in the order of the ids."""
    _give(connection, "wave", _WAVE, [*zip(ids, range(len(ids)), strict=True)])
    _place(connection, "letter", of="wave", where=where)


def _give(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: Sequence[Row]
) -> None:
    """Makes a temporary table of these rows, in a third of the time that an INSERT takes; the first column's values
    differ, and where another has only one it is given once. Of longer rows only the first columns are."""
    lists = [list(column) for column, _ in zip(zip(*rows, strict=True), columns, strict=False)]
    lists = lists or [[] for _ in columns]
    alike = [False, *(bool(rows) and column.count(column[0]) == len(rows) for column in lists[1:])]
    values = ", ".join(
        f"?::{kind} AS {column}" if same else f"unnest(?::{kind}[]) AS {column}"
        for (column, kind), same in zip(columns.items(), alike, strict=True)
    )
    given = [column[0] if same else column for same, column in zip(alike, lists, strict=True)]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {values}", given)


def _dead_letters(connection: duckdb.DuckDBPyConnection) -> list[ReplayRecord]:
    """Those that are `placed`. A few rows at a time: what lives at once is what Python's collector goes through."""
    _place(connection, "body", of="placed", into="embodied")
    found, dead_letters = connection.execute(_LETTERS), list[ReplayRecord]()
    while rows := found.fetchmany(_TOGETHER):
        dead_letters += map(_dead_letter, rows)
    return dead_letters


def _dead_letter(row: Row) -> ReplayRecord:
    """Nearly all have no headers."""
    headers = () if row[4] is None else read_headers(row[4])
    return ReplayRecord._make((*row[:4], headers, *row[5:]))


def _claim_placed(connection: duckdb.DuckDBPyConnection, operation_id: str, now: float) -> None:
    with dead_letter_counts.in_place(connection, "SELECT letter FROM placed"):
        run(connection, "replay_claim_letters", operation=operation_id, now=now)


def _place(
    connection: duckdb.DuckDBPyConnection,
    what: str,
    *,
    of: str,
    where: str = "true",
    given: Sequence[Any] = (),
    into: str = "placed",
) -> None:
    """Makes a temporary table: those rows of `of` whose dead letter, record or body meets the condition, with its row id."""
    table = _PLACED[what]
    if reads_whole(connection, table, dead_letter_counts.count_of(connection, of)):
        found, parameters = f"SELECT message_id, rowid AS {what} FROM {table} WHERE {where}", list(given)
    else:
        found = f"SELECT unnest(?::VARCHAR[]) AS message_id, unnest(?::BIGINT[]) AS {what}"
        ids = [one for (one,) in connection.execute(f"SELECT message_id FROM {of}").fetchall()]
        rows = _by_index(connection, table, ids, where, given)
        parameters = [[row[0] for row in rows], [row[1] for row in rows]]
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {into} AS "
        f"SELECT {of}.*, found.{what} FROM {of} JOIN ({found}) AS found USING (message_id)",
        parameters,
    )


def _by_index(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    ids: Sequence[str],
    condition: str,
    given: Sequence[Any],
) -> list[Row]:
    """Message id and row id of those that meet the condition. A dead letter has a record in each of its replays, so the
    index's limit (`by_id`) may hide ours behind those of others: what it did not find is looked for in the whole column."""
    found = fetch_rows(connection, table, ("message_id", "rowid"), ids, condition, given)
    if table == "operation_records" and len(found) < len(ids):
        known = {row[0] for row in found}
        missing = [message_id for message_id in ids if message_id not in known]
        sql = f"SELECT message_id, rowid FROM {table} WHERE {LISTED} AND {condition}"
        found += connection.execute(sql, [missing, *given]).fetchall()
    return found

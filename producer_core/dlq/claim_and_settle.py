"""Claim and settle thousands of dead letters and replay records in one write transaction.

The rows are located first and then updated by row id, which lets DuckDB change them in place. With RETURNING or a
trigger, DuckDB deletes and reinserts each row with its index entry, which takes ten times as long. The located rows are
in temporary tables, because a join takes a fifth of the time of an id list. Row ids are valid for one transaction only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import replay_waves
from producer_core.dlq.claim_position import ClaimPosition
from producer_core.dlq.claim_wave import claim_wave, single_records
from producer_core.dlq.codec import read_headers
from producer_core.dlq.lookup import LISTED, fetch_rows, prefers_full_scan
from producer_core.dlq.revisions import revision as revisions
from producer_core.dlq.wave_records import CLAIMABLE
from producer_core.store import dead_letter_counts
from producer_core.store.queries import query, run

if TYPE_CHECKING:
    import duckdb

_SELECTED_COLUMNS = {"message_id": "VARCHAR", "ord": "BIGINT"}
_OUTCOME_COLUMNS = {
    "message_id": "VARCHAR", "outcome": "VARCHAR", "text": "VARCHAR", "landed_partition": "INTEGER",
    "landed_offset": "BIGINT", "verdict": "VARCHAR",
}  # fmt: skip
_TABLES = {"record": "operation_records", "dead_letter": "dead_letters", "body": "dead_letter_bodies"}
_REPLAY_RECORDS = """
SELECT located.message_id, dead_letters.topic, dead_letters.key, body.value, nullif(body.headers, '[]') AS headers,
       dead_letters.partition, body.timestamp_ms, dead_letters.accepted_at, dead_letters.verdict,
       dead_letters.verdict_reason{more}
FROM located JOIN dead_letters ON dead_letters.rowid = located.dead_letter
LEFT JOIN (SELECT dead_letter, bodies.* FROM with_bodies
           JOIN dead_letter_bodies AS bodies ON bodies.rowid = with_bodies.body) AS body
     ON body.dead_letter = located.dead_letter
ORDER BY located.ord"""
"""The columns of a `ReplayRecord`, in order. A LEFT JOIN with `dead_letter_bodies` itself would scan all bodies."""
_BATCH_COLUMNS = """,
       coalesce(octet_length(body.value), 0) + coalesce(octet_length(dead_letters.key), 0) AS size,
       located.ord, located.dead_letter"""
"""The further columns of a `RecordBatch`."""
_NOT_LOCATED = "SELECT message_id FROM selected WHERE record NOT IN (SELECT record FROM located) ORDER BY ord"
_RECORD_IN_STATE = "operation_id = ? AND state = ?"
_REPLAYING = "operation_id = ? AND state = 'replaying'"

_FETCH_SIZE = 500
MIN_BATCH = 1_000
"""Records from which they are read as columns, which saves most of the time of rows."""

Row = tuple[Any, ...]


def claim_next(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    *,
    position: ClaimPosition,
    count: int,
    max_bytes: int,
    arrived_by: float,
    allow_oversized: bool,
    now: float,
    wave: int = 0,
) -> tuple[Sequence[ReplayRecord], list[str]]:
    """Claim the next pending records of an operation, at most `count`. Return them in order, and the ids of records whose
    dead letters can no longer be claimed. Many records that are all safe to send are returned as a `RecordBatch`.

    The batch ends before it exceeds `max_bytes`; with `allow_oversized`, a larger record is claimed alone. It also ends
    before the first record whose earlier attempt may still arrive after the time `arrived_by`. Up to `wave`
    records that are all safe to send are claimed as an open wave instead; others are claimed one by one up to the next
    wave.
    """
    replay_waves.begin_change(connection, replay=operation_id)
    limits = {
        "operation": operation_id, "count": count, "max_bytes": max_bytes, "arrived_by": arrived_by,
        "allow_oversized": allow_oversized,
    }  # fmt: skip
    if wave:
        if (batch := claim_wave(connection, position, limits | {"count": wave}, now=now)) is not None:
            return batch, []
        limits["count"] = single_records(connection, position, limits)
    _select_next(connection, position, limits)
    _locate_next(connection, position, "dead_letter", of="selected", into="located", where=CLAIMABLE)
    records = _read_claimed(connection, position)  # before the update, which may move rows
    _claim_located(connection, operation_id, now)
    claimed = run(connection, "replay_claim_records").fetchone()
    if claimed is None or claimed[0] != len(records):
        raise AssertionError("a dead letter was claimed without its replay record")
    return records, [message_id for (message_id,) in connection.execute(_NOT_LOCATED).fetchall()]


def _select_next(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition, limits: Mapping[str, Any]
) -> None:
    """Create the table `selected` of the next records. If their range is known, DuckDB reads no other rows.

    The records of the operation's open waves are claimed already.
    """
    next_records = query("replay_next_records")
    after = replay_waves.first_after(connection, limits["operation"])
    for first, last in position.ranges(limits["count"]):
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE selected AS {next_records.sql}",
            next_records.bind({**limits, "first": max(first, after), "last": last}),
        )
        for (claimed_up_to,) in connection.execute(
            "SELECT max(ord) FROM selected HAVING count(*) > 0"
        ).fetchall():
            position.claimed(claimed_up_to)
            return
    position.forget()


def read_replay_records(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> list[ReplayRecord]:
    """Return the dead letters with these ids, in the order of the ids. Ids without a dead letter are left out."""
    _locate_ids(connection, ids)
    return _read_located(connection)


def claim_by_id(
    connection: duckdb.DuckDBPyConnection, operation_id: str, ids: Sequence[str], *, now: float
) -> list[str]:
    """Claim these dead letters for a replay. Return the ids of those that were dead and replayable, in order."""
    replay_waves.begin_change(connection)
    _locate_ids(connection, ids, where=CLAIMABLE)
    _claim_located(connection, operation_id, now)
    found = connection.execute("SELECT message_id FROM located ORDER BY ord").fetchall()
    return [message_id for (message_id,) in found]


def settle_claimed(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    outcomes: Sequence[Row],
    *,
    now: float,
    quarantine_after: int,
) -> set[str]:
    """Write the outcomes of claimed records and of their dead letters. Return the ids of those that were claimed.

    An outcome has message id, outcome, text, partition, offset and verdict; further values are ignored.
    """
    settled = settle_records(connection, operation_id, "claimed", outcomes, now=now)
    locate_replaying(connection, operation_id)
    with dead_letter_counts.in_place(connection, "SELECT dead_letter FROM settled"):
        run(connection, "replay_settle_dead_letters", now=now, quarantine_after=quarantine_after)
    return settled


def locate_replaying(connection: duckdb.DuckDBPyConnection, operation_id: str) -> None:
    """Locate the dead letters of the located records that this operation has claimed."""
    _locate(connection, "dead_letter", of="located", into="settled", where=_REPLAYING, values=[operation_id])


def settle_records(
    connection: duckdb.DuckDBPyConnection,
    operation_id: str,
    before: str,
    outcomes: Sequence[Row],
    *,
    now: float,
) -> set[str]:
    """Write the outcomes of records in the state `before`, without their dead letters. Return the ids of those found."""
    _create_table(connection, "outcomes", _OUTCOME_COLUMNS, outcomes)
    _locate(connection, "record", of="outcomes", where=_RECORD_IN_STATE, values=[operation_id, before])
    run(connection, "replay_settle_records", now=now)
    return {message_id for (message_id,) in connection.execute("SELECT message_id FROM located").fetchall()}


def _locate_ids(connection: duckdb.DuckDBPyConnection, ids: Sequence[str], *, where: str = "true") -> None:
    """Locate the dead letters with these ids, in the order of the ids."""
    _create_table(connection, "selected", _SELECTED_COLUMNS, [*zip(ids, range(len(ids)), strict=True)])
    _locate(connection, "dead_letter", of="selected", where=where)


def _create_table(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: Sequence[Row]
) -> None:
    """Create a temporary table of these rows in a third of the time of an INSERT. Values beyond the columns are ignored.

    The first column must have distinct values. A column with a single distinct value is passed as one parameter.
    """
    lists = [list(column) for column, _ in zip(zip(*rows, strict=True), columns, strict=False)]
    lists = lists or [[] for _ in columns]
    constant = [False, *(bool(rows) and column.count(column[0]) == len(rows) for column in lists[1:])]
    expressions = ", ".join(
        f"?::{kind} AS {column}" if single else f"unnest(?::{kind}[]) AS {column}"
        for (column, kind), single in zip(columns.items(), constant, strict=True)
    )
    values = [column[0] if single else column for single, column in zip(constant, lists, strict=True)]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {expressions}", values)


def _read_claimed(connection: duckdb.DuckDBPyConnection, position: ClaimPosition) -> Sequence[ReplayRecord]:
    if dead_letter_counts.count_of(connection, "located") < MIN_BATCH or revisions.any_in(
        connection, "located"
    ):
        return tuple(_read_located(connection, position))
    _locate_next(connection, position, "body", of="located", into="with_bodies")
    table = connection.sql(_REPLAY_RECORDS.format(more=_BATCH_COLUMNS)).to_arrow_table()
    batch = RecordBatch(table, read_headers)
    return batch if batch.is_safe else tuple(batch)


def _read_located(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition | None = None
) -> list[ReplayRecord]:
    """Return the located dead letters, edited ones as their revisions. Small fetches leave few live objects for Python's garbage collector to traverse."""
    _locate_next(connection, position or ClaimPosition(), "body", of="located", into="with_bodies")
    found, records = connection.execute(_REPLAY_RECORDS.format(more="")), list[ReplayRecord]()
    while rows := found.fetchmany(_FETCH_SIZE):
        records += map(_replay_record, rows)
    return revisions.revised_records(connection, records)


def _replay_record(row: Row) -> ReplayRecord:
    headers = () if row[4] is None else read_headers(row[4])
    return ReplayRecord._make((*row[:4], headers, *row[5:]))


def _claim_located(connection: duckdb.DuckDBPyConnection, operation_id: str, now: float) -> None:
    with dead_letter_counts.state_changed(
        connection, "SELECT dead_letter FROM located", before="dead", after="replaying"
    ):
        run(connection, "replay_claim_dead_letters", operation=operation_id, now=now)


def _locate_next(
    connection: duckdb.DuckDBPyConnection,
    position: ClaimPosition,
    what: str,
    *,
    of: str,
    into: str,
    where: str = "true",
) -> None:
    """Locate like `_locate`, first among the rows after those of the last claim. The message id decides, not the row id."""
    count = dead_letter_counts.count_of(connection, of)
    likely = position.likely_row_ids(what, count)
    if likely is not None and count >= MIN_BATCH:
        near = f"{where} AND rowid BETWEEN {likely[0]} AND {likely[1]}"
        _locate(connection, what, of=of, where=near, into=into)
        if dead_letter_counts.count_of(connection, into) < count:
            _locate(connection, what, of=of, where=where, into=into)
    else:
        _locate(connection, what, of=of, where=where, into=into)
    sql = f"SELECT min({what}), max({what}) FROM {into} HAVING count(*) > 0"
    for row_ids in connection.execute(sql).fetchall():
        position.located(what, row_ids)


def _locate(
    connection: duckdb.DuckDBPyConnection,
    what: str,
    *,
    of: str,
    where: str = "true",
    values: Sequence[Any] = (),
    into: str = "located",
) -> None:
    """Create a temporary table of the rows of `of` whose dead letter, record or body meets the condition, with the row id."""
    table = _TABLES[what]
    if prefers_full_scan(connection, table, dead_letter_counts.count_of(connection, of)):
        found, parameters = f"SELECT message_id, rowid AS {what} FROM {table} WHERE {where}", list(values)
    else:
        found = f"SELECT unnest(?::VARCHAR[]) AS message_id, unnest(?::BIGINT[]) AS {what}"
        ids = [message_id for (message_id,) in connection.execute(f"SELECT message_id FROM {of}").fetchall()]
        rows = _row_ids(connection, table, ids, where, values)
        parameters = [[row[0] for row in rows], [row[1] for row in rows]]
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {into} AS "
        f"SELECT {of}.*, found.{what} FROM {of} JOIN ({found}) AS found USING (message_id)",
        parameters,
    )


def _row_ids(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    ids: Sequence[str],
    condition: str,
    values: Sequence[Any],
) -> list[Row]:
    """Return the message id and row id of the rows that meet the condition.

    A dead letter has one record per replay, so the LIMIT of `lookup.id_in` may exclude records of this replay. Ids that
    the index lookup misses are therefore looked up by a scan.
    """
    found = fetch_rows(connection, table, ("message_id", "rowid"), ids, condition, values)
    if table == "operation_records" and len(found) < len(ids):
        known = {row[0] for row in found}
        missing = [message_id for message_id in ids if message_id not in known]
        sql = f"SELECT message_id, rowid FROM {table} WHERE {LISTED} AND {condition}"
        found += connection.execute(sql, [missing, *values]).fetchall()
    return found

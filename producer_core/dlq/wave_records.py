"""Read the records of a wave as Arrow columns, with the fewest rows that DuckDB must look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from producer_core.dlq.claim_position import ClaimPosition
from producer_core.dlq.lookup import prefers_full_scan
from producer_core.dlq.replay_waves import Wave
from producer_core.events import SAFE_VERDICTS

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_ALWAYS_SCANNED = 100
"""Fewer records are read by a scan of stores in which as many as these would be."""
CLAIMABLE = "replayable AND state = 'dead'"
_RECORDS = """
SELECT message_id, ord FROM operation_records
WHERE operation_id = $operation AND state = 'pending' AND ord BETWEEN $first AND $last"""
_DEAD_LETTERS = f"""
SELECT message_id, topic, key, partition, accepted_at, verdict, verdict_reason,
       coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size, rowid AS dead_letter
FROM dead_letters WHERE {CLAIMABLE} AND {{between}}"""
_BODY_IDS = "SELECT message_id, rowid AS body FROM dead_letter_bodies WHERE {between}"
_BODY_COLUMNS = "value, nullif(headers, '[]') AS headers, timestamp_ms"
_BODIES = f"SELECT {_BODY_COLUMNS} FROM dead_letter_bodies WHERE {{between}}"
_COLUMNS = (
    "message_id", "topic", "key", "value", "headers", "partition", "timestamp_ms", "accepted_at", "verdict",
    "verdict_reason", "size", "ord", "dead_letter", "body",
)  # fmt: skip
"""The columns of a `RecordBatch`."""
_BY_ID = f"""
SELECT {", ".join(_COLUMNS)} FROM ({_RECORDS}) AS records
JOIN ({_DEAD_LETTERS}) AS dead_letters USING (message_id)
JOIN (SELECT message_id, {_BODY_COLUMNS}, rowid AS body FROM dead_letter_bodies WHERE {{between}}) AS bodies
USING (message_id)"""
"""Without the records whose dead letter or body is not found."""
_READ = "read_wave"
_FACTS = f"""
SELECT count(*), coalesce(sum(size), 0)::BIGINT, coalesce(bool_and(verdict IN {SAFE_VERDICTS}), true),
       coalesce(bool_and(ord > before), true), min(ord), max(ord), min(dead_letter), max(dead_letter), min(body), max(body)
FROM (SELECT *, lag(ord) OVER () AS before FROM {_READ})"""


class WaveFacts(NamedTuple):
    """What one query finds out about the records that were read, without a Python object for each value."""

    number: int
    size: int
    is_safe: bool
    is_ordered: bool
    ord: tuple[int, int]
    dead_letter: tuple[int, int]
    body: tuple[int, int]

    @property
    def is_contiguous(self) -> bool:
        """Whether dead letters and bodies are stored without a gap, and so probably in the order of the replay."""
        return all(last - first + 1 == self.number for first, last in (self.dead_letter, self.body))


class WaveRecords(NamedTuple):
    table: pyarrow.Table
    facts: WaveFacts


class _Query(NamedTuple):
    connection: duckdb.DuckDBPyConnection
    operation: str
    wave: Wave

    def read(self, sql: str) -> pyarrow.Table:
        numbers = {"operation": self.operation, "first": self.wave.first, "last": self.wave.last}
        used = {name: value for name, value in numbers.items() if f"${name}" in sql}
        return self.connection.sql(sql, params=used).to_arrow_table()


def read_wave(
    connection: duckdb.DuckDBPyConnection, position: ClaimPosition, operation: str, wave: Wave, count: int
) -> WaveRecords | None:
    """Return the pending records of the range in their order, if all `count` of them can be claimed, else None."""
    for table in _tables(_Query(connection, operation, wave), position, count):
        facts = _facts(connection, table)
        if facts.number == count:
            position.located("dead_letter", facts.dead_letter)
            position.located("body", facts.body)
            position.in_order = facts.is_contiguous
            return WaveRecords(table if facts.is_ordered else _sorted(connection, table), facts)
    return None


def is_scanned(connection: duckdb.DuckDBPyConnection, count: int) -> bool:
    """Return whether a scan of all dead letters finds this many faster than their index."""
    return prefers_full_scan(connection, "dead_letters", max(count, _ALWAYS_SCANNED))


def _tables(query: _Query, position: ClaimPosition, count: int) -> Iterator[pyarrow.Table]:
    """Yield tables that have all of the records if: their rows are the next ones in the same order, they are near the last
    claim, or (if a full scan is fast) they exist."""
    rows = position.next_rows(count) if position.in_order else []
    if rows and (table := _in_order(query, *rows)) is not None:
        yield table
    if near := position.likely_rows(count):
        yield query.read(_by_id(*map(_between, near)))
    if is_scanned(query.connection, count):
        yield query.read(_by_id("true", "true"))


def _in_order(query: _Query, dead_letters: tuple[int, int], bodies: tuple[int, int]) -> pyarrow.Table | None:
    """Return the records if these rows are theirs, in the same order. It takes half the time of a join."""
    records = query.read(_RECORDS)
    tables = [records]
    for sql, rows in ((_DEAD_LETTERS, dead_letters), (_BODY_IDS, bodies)):
        tables.append(query.read(sql.format(between=_between(rows))))
        if not tables[-1]["message_id"].equals(records["message_id"]):
            return None
    tables.append(query.read(_BODIES.format(between=_between(bodies))))  # last: others may be much larger
    columns = {name: table[name] for table in tables for name in table.column_names}
    return type(records).from_arrays([columns[name] for name in _COLUMNS], names=list(_COLUMNS))


def _sorted(connection: duckdb.DuckDBPyConnection, table: pyarrow.Table) -> pyarrow.Table:
    """Return the records in the order of the operation; they rarely need to be sorted."""
    connection.register(_READ, table)
    try:
        return connection.sql(f"SELECT * FROM {_READ} ORDER BY ord").to_arrow_table()
    finally:
        connection.unregister(_READ)


def _by_id(dead_letters: str, bodies: str) -> str:
    return _BY_ID.replace("{between}", dead_letters, 1).replace("{between}", bodies, 1)


def _between(row_ids: tuple[int, int]) -> str:
    return f"rowid BETWEEN {row_ids[0]} AND {row_ids[1]}"


def _facts(connection: duckdb.DuckDBPyConnection, table: pyarrow.Table) -> WaveFacts:
    connection.register(_READ, table)
    try:
        ((count, size, is_safe, is_ordered, *ranges),) = connection.execute(_FACTS).fetchall()
    finally:
        connection.unregister(_READ)
    return WaveFacts(count, size, is_safe, is_ordered, *zip(ranges[::2], ranges[1::2], strict=True))

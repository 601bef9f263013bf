"""The revisions of dead letters in a store, and the records that a replay sends instead of the originals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core.dlq.codec import read_headers, write_headers
from producer_core.dlq.revisions.patch import Headers, Patch
from producer_core.messages import REVISION
from producer_core.store import merge

if TYPE_CHECKING:
    import duckdb
    import pyarrow

    from producer_core.delivery.dead_letter import ReplayRecord
    from producer_core.events import DeadLetter

COLUMNS = (
    *("message_id", "number", "made_at", "who", "origin", "reason", "patch", "key", "value", "headers"),
    *("schema_id", "replaced_id", "made_replayable", "undone_at", "undone_by"),
)
_ANY = "SELECT 1 FROM dead_letter_revisions WHERE undone_at IS NULL LIMIT 1"
_ANY_IN = """
SELECT 1 FROM {table} JOIN dead_letter_revisions AS revisions USING (message_id)
WHERE revisions.undone_at IS NULL LIMIT 1"""
_CURRENT = f"""
SELECT {", ".join(COLUMNS)} FROM dead_letter_revisions
WHERE undone_at IS NULL AND message_id IN (SELECT unnest(?::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY message_id ORDER BY number DESC) = 1"""
_WITH_REVISION = """
SELECT message_id FROM dead_letters
WHERE message_id IN (SELECT message_id FROM dead_letter_revisions WHERE undone_at IS NULL) AND ({condition})
ORDER BY message_id"""
_ALL = f"""
SELECT {", ".join(COLUMNS)} FROM dead_letter_revisions
WHERE message_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY message_id, number"""
_REPLACED = """
SELECT replaced_id FROM dead_letter_revisions
WHERE undone_at IS NULL AND replaced_id IN (SELECT unnest(?::VARCHAR[]))"""
_ANY_AT_ALL = "SELECT 1 FROM dead_letter_revisions LIMIT 1"
_REPLACING = f"""
SELECT {", ".join(COLUMNS)} FROM dead_letter_revisions
WHERE undone_at IS NULL AND replaced_id IN (SELECT unnest(?::VARCHAR[]))"""
_REPLACEMENTS = (
    "SELECT message_id, replaced_id FROM dead_letter_revisions WHERE undone_at IS NULL AND replaced_id = ?"
)

NOT_REPLACED = """message_id NOT IN (
    SELECT replaced_id FROM dead_letter_revisions WHERE replaced_id IS NOT NULL AND undone_at IS NULL)"""
"""Selects dead letters without an edit that is a dead letter of its own."""
CURRENT_NUMBERS = """
SELECT message_id, max(number) AS number,
       arg_max(coalesce(octet_length(value), 0) + coalesce(octet_length(key), 0), number) AS size
FROM dead_letter_revisions WHERE undone_at IS NULL GROUP BY message_id"""
"""A query of the number and the size (bytes of key and value) of each current revision."""

SENT_VALUES = """
SELECT message_id, arg_max(value, number) AS value FROM dead_letter_revisions WHERE undone_at IS NULL GROUP BY message_id
UNION ALL
SELECT message_id, value FROM dead_letter_bodies
WHERE message_id NOT IN (SELECT message_id FROM dead_letter_revisions WHERE undone_at IS NULL)"""
"""A query of the value that a replay sends of each dead letter."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One edit of a dead letter. `value`, `headers` and `key` are the whole record that it sends.

    `replaced_id` is the dead letter that this one was made from, if its original may be on its topic. `undone_at` is None
    for a revision that is not undone; of these the one with the highest number is sent.
    """

    message_id: str
    number: int
    made_at: float
    who: str
    origin: str
    reason: str
    patch: Patch
    key: bytes | None
    value: bytes | None
    headers: Headers
    schema_id: str | None = None
    replaced_id: str | None = None
    made_replayable: bool = False
    undone_at: float | None = None
    undone_by: str | None = None

    @property
    def size(self) -> int:
        """The size of key and value in bytes."""
        return len(self.value or b"") + len(self.key or b"")

    @property
    def sent_headers(self) -> Headers:
        """The headers that are sent: those of the record, and one that names the revision."""
        others = tuple((name, value) for name, value in self.headers if name != REVISION)
        return (*others, (REVISION, b"%d" % self.number))


class Lineage(NamedTuple):
    """All revisions of a dead letter, oldest first, and the dead letter that its edit became, if it is another one."""

    revisions: tuple[Revision, ...]
    replaced_by: str | None


def read_revision(row: Sequence[Any]) -> Revision:
    """Return the revision of a row with COLUMNS."""
    found = dict(zip(COLUMNS, row, strict=True))
    return Revision(**found | {"patch": Patch.from_json(row[6]), "headers": read_headers(row[9])})


def any_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the store has a revision that is not undone, which takes no time in a store without edits."""
    return bool(connection.execute(_ANY).fetchall())


def any_in(connection: duckdb.DuckDBPyConnection, table: str, records: pyarrow.Table | None = None) -> bool:
    """Whether one of the records of a table with a `message_id` has a current revision; `records` are its rows, if it is
    not a table of the connection."""
    if not any_current(connection):
        return False
    if records is not None:
        connection.register(table, records)
    try:
        return bool(connection.execute(_ANY_IN.format(table=table)).fetchall())
    finally:
        if records is not None:
            connection.unregister(table)


def current(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, Revision]:
    """Return the current revisions of those of these dead letters that have one."""
    if not ids or not any_current(connection):
        return {}
    rows = connection.execute(_CURRENT, [list(ids)]).fetchall()
    return {row[0]: read_revision(row) for row in rows}


def ids_with_revision(
    connection: duckdb.DuckDBPyConnection, condition: str = "true", parameters: Sequence[Any] = ()
) -> list[str]:
    """Return the ids of the dead letters that meet a condition and have a current revision."""
    rows = connection.execute(_WITH_REVISION.format(condition=condition), parameters).fetchall()
    return [message_id for (message_id,) in rows]


def all_of(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, list[Revision]]:
    """Return all revisions of these dead letters, also undone ones, the oldest first."""
    found: dict[str, list[Revision]] = {}
    for row in connection.execute(_ALL, [list(ids)]).fetchall():
        found.setdefault(row[0], []).append(read_revision(row))
    return found


def exported_revisions(
    connection: duckdb.DuckDBPyConnection, ids: Sequence[str]
) -> dict[str, list[Revision]]:
    """Return what belongs to each of these dead letters in a file: its revisions, and that of the edit that replaces it."""
    if not connection.execute(_ANY_AT_ALL).fetchall():
        return {}
    found = all_of(connection, ids)
    for row in connection.execute(_REPLACING, [list(ids)]).fetchall():
        revision = read_revision(row)
        found.setdefault(str(revision.replaced_id), []).append(revision)
    return found


def write_revisions(connection: duckdb.DuckDBPyConnection, revisions: Sequence[Revision]) -> None:
    """Write revisions of another store, except those that this store has."""
    known = all_of(connection, list({one.message_id for one in revisions}))
    numbers = {(one.message_id, one.number) for found in known.values() for one in found}
    new = {(one.message_id, one.number): one for one in revisions}
    rows = [_row(one) for place, one in new.items() if place not in numbers]
    merge.insert(connection, "dead_letter_revisions", COLUMNS, rows)


def _row(revision: Revision) -> tuple[Any, ...]:
    """Return the row of a revision, with COLUMNS."""
    values = {name: getattr(revision, name) for name in COLUMNS}
    written = {"patch": revision.patch.to_json(), "headers": write_headers(revision.headers)}
    return tuple((values | written).values())


def replaced(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> set[str]:
    """Return those of these dead letters whose edit is a dead letter of its own."""
    if not ids or not any_current(connection):
        return set()
    return {found for (found,) in connection.execute(_REPLACED, [list(ids)]).fetchall()}


def replacement_of(connection: duckdb.DuckDBPyConnection, message_id: str) -> str | None:
    """Return the id of the dead letter that the edit of this one became; None if there is none."""
    found = connection.execute(_REPLACEMENTS, [message_id]).fetchall()
    return str(found[0][0]) if found else None


def revised_records(connection: duckdb.DuckDBPyConnection, records: list[ReplayRecord]) -> list[ReplayRecord]:
    """Return the records to send: those with a revision have its key, value and headers."""
    found = current(connection, [record.message_id for record in records])
    return [
        record._replace(key=one.key, value=one.value, headers=one.sent_headers)
        if (one := found.get(record.message_id))
        else record
        for record in records
    ]


def revised_dead_letters(
    connection: duckdb.DuckDBPyConnection, dead_letters: Sequence[DeadLetter]
) -> list[DeadLetter]:
    """Return the dead letters with the key, value and headers that a replay of them sends."""
    found = current(connection, [dead_letter.message_id for dead_letter in dead_letters])
    return [
        replace(dead_letter, key=one.key, value=one.value, headers=one.sent_headers)
        if (one := found.get(dead_letter.message_id))
        else dead_letter
        for dead_letter in dead_letters
    ]

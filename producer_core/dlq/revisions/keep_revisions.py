"""Write revisions to the store, within the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from producer_core._internal.id_header import id_text
from producer_core.dlq import codec, insert, replay_waves, states
from producer_core.dlq.approvals.edited_records import revoke_starts
from producer_core.dlq.lookup import fetch, fetch_rows, id_in
from producer_core.dlq.revisions.patch import Headers
from producer_core.dlq.revisions.plan_revision import PlannedRevision
from producer_core.dlq.revisions.revision import COLUMNS, all_of
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.messages import REPLACES, id_bytes, new_session
from producer_core.store import dead_letter_counts, merge, required_features

if TYPE_CHECKING:
    import duckdb

_EVENT_COLUMNS = ("message_id", "happened_at", "what", "who", "origin", "text")
_MARK_RECORDS = """
UPDATE operation_records SET revision = given.number, size = given.size, flag = NULL
FROM (SELECT unnest(?::VARCHAR[]) AS message_id, unnest(?::INTEGER[]) AS number, unnest(?::BIGINT[]) AS size) AS given
WHERE operation_records.message_id = given.message_id AND operation_records.state = 'pending'"""
_CHECK_AGAIN = """
UPDATE operations SET checked_at = NULL
WHERE state = 'ready' AND operation_id IN (
    SELECT operation_id FROM operation_records
    WHERE state = 'pending' AND message_id IN (SELECT unnest(?::VARCHAR[])))"""
NOT_SENT = "The edit was never sent."
"""The reason of the verdict on an edit that is a message of its own."""


@dataclass(frozen=True)
class Kept:
    """The numbers of the kept revisions by message id, the new ids of those that replace an original, and the replays that
    must be approved again."""

    numbers: dict[str, int] = field(default_factory=dict)
    replacements: dict[str, str] = field(default_factory=dict)
    paused: list[str] = field(default_factory=list)


def keep(
    connection: duckdb.DuckDBPyConnection,
    planned: Sequence[PlannedRevision],
    *,
    now: float,
    who: str,
    origin: str,
    reason: str,
) -> Kept:
    """Keep those revisions whose dead letter is still as it was when they were planned."""
    replay_waves.begin_change(connection)
    still, highest = _unchanged(connection, planned)
    kept = Kept()
    if not still:
        return kept
    required_features.require(connection, required_features.REVISIONS, now=now)
    new_ids = _new_ids(connection, still, kept, now=now)
    rows = []
    for one in still:
        message_id = new_ids.get(one.message_id, one.message_id)
        number = 1 if one.replaces else highest[one.message_id] + 1
        headers = _with_replaced(one.headers, one.message_id) if one.replaces else one.headers
        kept.numbers[message_id] = number
        rows.append(
            (
                message_id, number, now, who, origin, reason, one.patch.to_json(), one.key, one.value,
                codec.write_headers(headers), None if one.patch.schema_id is None else str(one.patch.schema_id),
                one.message_id if one.replaces else None, one.makes_replayable, None, None,
            )
        )  # fmt: skip
    merge.insert(connection, "dead_letter_revisions", COLUMNS, rows)
    sendable = [one.message_id for one in still if one.makes_replayable and not one.replaces]
    set_replayable(connection, sendable, replayable=True)
    current = {one.message_id: (kept.numbers[one.message_id], one.size) for one in still if not one.replaces}
    kept.paused.extend(mark_records(connection, current))
    _add_events(connection, kept, now=now, who=who, origin=origin, reason=reason)
    return kept


def mark_records(
    connection: duckdb.DuckDBPyConnection, current: Mapping[str, tuple[int | None, int]]
) -> list[str]:
    """Note the revision number and size of dead letters in the replays that have still to send them.

    Such a record is claimed by itself, and an undecided replay repeats its check. Under an approval policy, started replays
    are paused; return their ids.
    """
    if not current:
        return []
    ids = list(current)
    connection.execute(
        _MARK_RECORDS, [ids, [current[one][0] for one in ids], [current[one][1] for one in ids]]
    )
    connection.execute(_CHECK_AGAIN, [ids])
    return revoke_starts(connection, ids)


def _unchanged(
    connection: duckdb.DuckDBPyConnection, planned: Sequence[PlannedRevision]
) -> tuple[list[PlannedRevision], dict[str, int]]:
    """Return the revisions that may be kept, and the highest number that each dead letter has, 0 for none."""
    ids = [one.message_id for one in planned]
    found = fetch(connection, "dead_letters", ("message_id", "state", "verdict"), ids)
    revisions = all_of(connection, ids)
    highest = {one: max((item.number for item in revisions.get(one, ())), default=0) for one in ids}
    numbers = {
        one: max((item.number for item in revisions.get(one, ()) if item.undone_at is None), default=0)
        for one in ids
    }
    return [
        one
        for one in planned
        if (row := found.get(one.message_id)) is not None
        and row["state"] == "dead"
        and (row["verdict"] not in SAFE_VERDICTS) == one.replaces
        and numbers[one.message_id] == one.base
    ], highest


def _new_ids(
    connection: duckdb.DuckDBPyConnection, planned: Sequence[PlannedRevision], kept: Kept, *, now: float
) -> dict[str, str]:
    """Archive the originals that may be on their topics, and add a dead letter with a new id for each."""
    originals = [one.message_id for one in planned if one.replaces]
    if not originals:
        return {}
    session = new_session()
    kept.replacements.update(
        {one: id_text(id_bytes(session, number)) for number, one in enumerate(originals, start=1)}
    )
    states.move(connection, id_in(originals), "dead", "archived", now=now)
    insert.write(
        connection,
        [_replacement(one, kept.replacements[one.message_id]) for one in _whole(connection, originals)],
        now=now,
        first_failures={
            kept.replacements[one]: row["first_failed_at"]
            for one, row in fetch(
                connection, "dead_letters", ("message_id", "first_failed_at"), originals
            ).items()
            if row["first_failed_at"] is not None
        },
    )
    return kept.replacements


def _whole(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> list[DeadLetter]:
    rows = fetch_rows(connection, "dead_letters", codec.WHOLE_COLUMNS, ids)
    bodies = {row[0]: row for row in fetch_rows(connection, "dead_letter_bodies", codec.BODY_COLUMNS, ids)}
    return [codec.whole_dead_letter(row, bodies.get(row[0])) for row in rows]


def _replacement(original: DeadLetter, message_id: str) -> DeadLetter:
    """Return the dead letter of an edit: the same record under a new id that was never sent."""
    return replace(
        original,
        message_id=message_id,
        headers=_with_replaced(original.headers, original.message_id),
        verdict="not_sent",
        verdict_reason=f"{NOT_SENT} It replaces {original.message_id}: {original.verdict}.",
        state="dead",
        quarantined=False,
        replay_count=0,
        replayable=True,
    )


def _with_replaced(headers: Headers, message_id: str) -> Headers:
    """Return the headers with one that names the replaced message; an earlier one names an earlier edit."""
    others = tuple(header for header in headers if header[0] != REPLACES)
    return (*others, (REPLACES, message_id.encode()))


def set_replayable(connection: duckdb.DuckDBPyConnection, ids: Sequence[str], *, replayable: bool) -> None:
    """Say whether dead letters of malformed input can be sent, which they can while they have a revision."""
    if not ids:
        return
    condition, values = id_in(ids)
    with dead_letter_counts.in_place(connection, f"SELECT rowid FROM dead_letters WHERE {condition}", values):
        connection.execute(
            "UPDATE dead_letters SET replayable = ? WHERE rowid IN (SELECT place FROM changed_places)",
            [replayable],
        )


def _add_events(
    connection: duckdb.DuckDBPyConnection, kept: Kept, *, now: float, who: str, origin: str, reason: str
) -> None:
    edited = [
        (message_id, now, "edited", who, origin, f"revision {number}: {reason}")
        for message_id, number in kept.numbers.items()
    ]
    replaced = [
        (message_id, now, "replaced", who, origin, f"by the edit {new_id}: {reason}")
        for message_id, new_id in kept.replacements.items()
    ]
    merge.insert(connection, "letter_events", _EVENT_COLUMNS, [*edited, *replaced])

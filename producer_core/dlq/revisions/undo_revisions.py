"""Undo the current revisions of dead letters, within the caller's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from producer_core.dlq import lookup, replay_waves, states
from producer_core.dlq.lookup import fetch, id_in
from producer_core.dlq.revisions.keep_revisions import mark_records, set_replayable
from producer_core.dlq.revisions.revision import Revision, all_of, current
from producer_core.events import SAFE_VERDICTS
from producer_core.store import merge

if TYPE_CHECKING:
    import duckdb

_EVENT_COLUMNS = ("message_id", "happened_at", "what", "who", "origin", "text")
_UNDO = """
UPDATE dead_letter_revisions SET undone_at = ?, undone_by = ?
FROM (SELECT unnest(?::VARCHAR[]) AS message_id, unnest(?::INTEGER[]) AS number) AS given
WHERE dead_letter_revisions.message_id = given.message_id AND dead_letter_revisions.number = given.number"""
_MOVE_LINEAGE = """
UPDATE dead_letter_revisions SET message_id = ?, number = number + ?, replaced_id = NULL
WHERE message_id = ?"""
_REASONS = {
    "unedited": ("has no edit", "have no edit"),
    "sent": (
        "may be on the topic or in another store, so its edit cannot be undone",
        "may be on the topic or in another store, so their edits cannot be undone",
    ),
    "original": (
        "replaces an original that is no longer archived",
        "replace originals that are no longer archived",
    ),
}


@dataclass
class Undone:
    """The ids of dead letters whose edits were undone, the number of the others, and sentences about these. `paused`: the
    replays that must be approved again."""

    ids: list[str] = field(default_factory=list)
    left: int = 0
    reasons: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)


def undo(
    connection: duckdb.DuckDBPyConnection, ids: Sequence[str], *, now: float, who: str, origin: str
) -> Undone:
    """Undo the current revision of each of these dead letters, unless it may have been sent.

    A purged edit that was a dead letter of its own stays purged, and its original is pending again.
    """
    replay_waves.begin_change(connection)
    revisions, left = current(connection, ids), Counter[str]()
    rows = fetch(connection, "dead_letters", ("message_id", "state", "verdict"), ids)
    originals = fetch(
        connection,
        "dead_letters",
        ("message_id", "state"),
        [one.replaced_id for one in revisions.values() if one.replaced_id],
    )
    undoable: list[Revision] = []
    for message_id in ids:
        if problem := _problem(revisions.get(message_id), rows.get(message_id), originals):
            left[problem] += 1
        else:
            undoable.append(revisions[message_id])
    paused = _write(connection, undoable, now=now, who=who, origin=origin)
    return Undone([one.message_id for one in undoable], left.total(), list(_sentences(left)), paused)


def _problem(
    revision: Revision | None, row: Mapping[str, Any] | None, originals: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Return why a revision cannot be undone, as a key of _REASONS or a state; None if it can."""
    if row is None or revision is None:
        return "unedited"
    if row["state"] != "dead" and not (row["state"] == "purged" and revision.replaced_id):
        return str(row["state"])
    if row["verdict"] not in SAFE_VERDICTS:
        return "sent"
    if revision.replaced_id and originals.get(revision.replaced_id, {}).get("state") != "archived":
        return "original"
    return None


def _sentences(left: Counter[str]) -> Iterator[str]:
    for problem, number in left.items():
        words = _REASONS.get(problem, (f"is {problem}", f"are {problem}"))
        yield f"{number:,} {words[number != 1]}."


def _write(
    connection: duckdb.DuckDBPyConnection, undone: Sequence[Revision], *, now: float, who: str, origin: str
) -> list[str]:
    """Undo these revisions. Return the replays that were paused."""
    if not undone:
        return []
    connection.execute(_UNDO, [now, who, [one.message_id for one in undone], [one.number for one in undone]])
    for one in undone:
        if one.replaced_id:
            _remove_replacement(connection, one, one.replaced_id)
    if restored := [one.replaced_id for one in undone if one.replaced_id]:
        states.move(connection, id_in(restored), "archived", "dead", now=now)
    paused = _apply_previous(connection, [one for one in undone if not one.replaced_id])
    merge.insert(
        connection,
        "letter_events",
        _EVENT_COLUMNS,
        [
            (one.replaced_id or one.message_id, now, "edit undone", who, origin, f"revision {one.number}")
            for one in undone
        ],
    )
    return paused


def _apply_previous(connection: duckdb.DuckDBPyConnection, undone: Sequence[Revision]) -> list[str]:
    """Let the previous revisions apply, or the originals. Return the replays that were paused."""
    ids = [one.message_id for one in undone]
    previous = current(connection, ids)
    set_replayable(
        connection,
        [one.message_id for one in undone if one.made_replayable and one.message_id not in previous],
        replayable=False,
    )
    sizes = fetch(
        connection,
        "dead_letters",
        ("message_id", "coalesce(value_size, 0) + coalesce(octet_length(key), 0)"),
        ids,
    )
    return mark_records(
        connection,
        {
            one: (previous[one].number, previous[one].size) if one in previous else (None, [*row.values()][1])
            for one, row in sizes.items()
        },
    )


def _remove_replacement(connection: duckdb.DuckDBPyConnection, revision: Revision, original: str) -> None:
    """Delete the dead letter that the edit was, unless it was purged. Its undone revisions become those of the original."""
    earlier = all_of(connection, [original]).get(original, [])
    connection.execute(
        _MOVE_LINEAGE, [original, max((one.number for one in earlier), default=0), revision.message_id]
    )
    row = fetch(connection, "dead_letters", ("message_id", "state"), [revision.message_id])
    if row[revision.message_id]["state"] == "purged":
        return  # its events say who purged it
    for table in ("dead_letters", "dead_letter_bodies", "letter_events"):
        lookup.delete(connection, table, [revision.message_id])

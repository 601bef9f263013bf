"""Import dead letters of another store unchanged, except for those that this store already has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from producer_core.dlq import codec, states
from producer_core.dlq.lookup import fetch, id_in
from producer_core.dlq.revisions.keep_revisions import mark_records
from producer_core.dlq.revisions.revision import Revision, current, write_revisions
from producer_core.events import DeadLetter
from producer_core.store import required_features
from producer_core.store.merge import insert

if TYPE_CHECKING:
    import duckdb

_EVENT_COLUMNS = ("message_id", "happened_at", "what", "who", "origin", "text")


@dataclass(frozen=True, slots=True)
class Import:
    """A dead letter of another store, with the further columns of its row, and its revisions."""

    dead_letter: DeadLetter
    row: Mapping[str, Any]
    revisions: tuple[Revision, ...] = ()


@dataclass(frozen=True)
class ImportResult:
    """The ids of new dead letters, and the number of known ones by state."""

    new: tuple[str, ...]
    known: Counter[str] = field(default_factory=Counter)


def preview_import(connection: duckdb.DuckDBPyConnection, dead_letters: Sequence[DeadLetter]) -> ImportResult:
    """Return the result of importing these dead letters, without importing them."""
    ids = [dead_letter.message_id for dead_letter in dead_letters]
    stored = fetch(connection, "dead_letters", ("message_id", "state"), ids)
    new = tuple(message_id for message_id in dict.fromkeys(ids) if message_id not in stored)
    known = Counter(stored[message_id]["state"] for message_id in ids if message_id in stored)
    known["repeated in the file"] += len(ids) - len(new) - known.total()
    return ImportResult(new, +known)


def import_dead_letters(
    connection: duckdb.DuckDBPyConnection,
    imports: Sequence[Import],
    *,
    now: float,
    who: str,
    origin: str,
    text: str,
) -> ImportResult:
    """Write rows, bodies and an event for each new dead letter, within the caller's transaction.

    A known message id stays unchanged in any state. Importing a file again, for example after a killed import, therefore
    adds only what is missing.
    """
    first: dict[str, Import] = {}
    for one in imports:
        first.setdefault(one.dead_letter.message_id, one)
    result = preview_import(connection, [one.dead_letter for one in imports])
    new = [first[message_id] for message_id in result.new]
    rows = [_row(one, now) for one in new]
    bodies = [codec.body_row(one.dead_letter) for one in new if one.dead_letter.state != "purged"]
    events = [(message_id, now, "imported", who, origin, text) for message_id in result.new]
    insert(connection, "dead_letters", codec.WRITTEN_COLUMNS, rows)
    insert(connection, "dead_letter_bodies", codec.BODY_COLUMNS, bodies)
    insert(connection, "letter_events", _EVENT_COLUMNS, events)
    if revisions := [revision for one in new for revision in one.revisions]:
        required_features.require(connection, required_features.REVISIONS, now=now)
        write_revisions(connection, revisions)
        _mark_known(connection, revisions, result)
        archive_replaced(connection, revisions, now=now)
    return result


def _mark_known(
    connection: duckdb.DuckDBPyConnection, revisions: Sequence[Revision], result: ImportResult
) -> None:
    """Treat revisions of dead letters that this store had as edits: replays that have still to send them notice."""
    known = {one.message_id for one in revisions} - {*result.new}
    marks = {one: (found.number, found.size) for one, found in current(connection, list(known)).items()}
    mark_records(connection, marks)


def archive_replaced(
    connection: duckdb.DuckDBPyConnection, revisions: Sequence[Revision], *, now: float
) -> None:
    """Archive originals that this store has and that an imported edit replaces, so that they are not both sent.

    An edit whose original was sent from this store, or is being sent, is archived instead. An operator can restore it.
    """
    edits = {
        one.replaced_id: one.message_id for one in revisions if one.replaced_id and one.undone_at is None
    }
    if not edits:
        return
    states.move(connection, id_in([*edits]), "dead", "archived", now=now)
    rows = fetch(connection, "dead_letters", ("message_id", "state"), [*edits])
    if late := [
        edits[one] for one, row in rows.items() if row["state"] in ("replaying", "replayed", "landed")
    ]:
        states.move(connection, id_in(late), "dead", "archived", now=now)


def _row(one: Import, now: float) -> tuple[Any, ...]:
    """Return the row to write. `state_at` is now, so that the purge and retention periods start with the import."""
    values = zip(codec.WRITTEN_COLUMNS, codec.written_row(one.dead_letter, now=now), strict=True)
    return tuple(one.row.get(name, value) for name, value in values)

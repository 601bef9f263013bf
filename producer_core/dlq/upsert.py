"""The taking in of dead letters from elsewhere: as they were there, unless they are known here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from producer_core.dlq import codec
from producer_core.dlq.lookup import fetch
from producer_core.events import DeadLetter
from producer_core.store.merge import insert

if TYPE_CHECKING:
    import duckdb

_EVENT = ("message_id", "happened_at", "what", "who", "origin", "text")


@dataclass(frozen=True, slots=True)
class Import:
    """A dead letter of another store, with what its row had besides."""

    dead_letter: DeadLetter
    row: Mapping[str, Any]


@dataclass(frozen=True)
class ImportResult:
    """The ids that are new here, and by state how many were known."""

    new: tuple[str, ...]
    known: Counter[str] = field(default_factory=Counter)


def look(connection: duckdb.DuckDBPyConnection, dead_letters: Sequence[DeadLetter]) -> ImportResult:
    """What taking these in would do."""
    ids = [dead_letter.message_id for dead_letter in dead_letters]
    here = fetch(connection, "dead_letters", ("message_id", "state"), ids)
    new = tuple(message_id for message_id in dict.fromkeys(ids) if message_id not in here)
    known = Counter(here[message_id]["state"] for message_id in ids if message_id in here)
    known["in the file before"] += len(ids) - len(new) - known.total()
    return ImportResult(new, +known)


def take_in(
    connection: duckdb.DuckDBPyConnection,
    brought: Sequence[Import],
    *,
    now: float,
    who: str,
    origin: str,
    text: str,
) -> ImportResult:
    """Within the caller's transaction: rows, bodies, and a line in the life of each.

    A message id that is known here stays exactly as it is, whatever its state; so the same file twice, or the rest
    of one after a kill, adds what is missing and nothing else.
    """
    first: dict[str, Import] = {}
    for one in brought:
        first.setdefault(one.dead_letter.message_id, one)
    taken = look(connection, [one.dead_letter for one in brought])
    new = [first[message_id] for message_id in taken.new]
    rows = [_row(one, now) for one in new]
    bodies = [codec.body_row(one.dead_letter) for one in new if one.dead_letter.state != "purged"]
    events = [(message_id, now, "imported", who, origin, text) for message_id in taken.new]
    insert(connection, "dead_letters", codec.WRITTEN_COLUMNS, rows)
    insert(connection, "dead_letter_bodies", codec.BODY_COLUMNS, bodies)
    insert(connection, "letter_events", _EVENT, events)
    return taken


def _row(one: Import, now: float) -> tuple[Any, ...]:
    """`state_at` is now: what was archived elsewhere long ago is not old enough to be purged or pruned here."""
    values = zip(codec.WRITTEN_COLUMNS, codec.written_row(one.dead_letter, now=now), strict=True)
    return tuple(one.row.get(name, value) for name, value in values)

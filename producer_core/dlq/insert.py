"""The keeping of a death: a new row, or one more death of a message that has its row already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from producer_core.dlq import codec
from producer_core.dlq.lookup import fetch, forget
from producer_core.events import Attempt, DeadLetter
from producer_core.store.merge import insert

if TYPE_CHECKING:
    import duckdb

_LETTER = ("message_id", "failed_at", "accepted_at", "replay_count", "quarantined", "operation_id")
_BODY = ("message_id", "attempts")
_COUNT_REPLAY = "UPDATE dead_letters SET replay_count = replay_count + 1 WHERE message_id = ?"

Known = tuple[float, float, int, bool, str | None, tuple[Attempt, ...]]


def keep(connection: duckdb.DuckDBPyConnection, dead_letters: Iterable[DeadLetter], *, now: float) -> None:
    """Write the dead letters within the caller's transaction."""
    clean = [codec.writable(dead_letter) for dead_letter in dead_letters]
    known = _known(connection, [dead_letter.message_id for dead_letter in clean])
    latest: dict[str, DeadLetter] = {}
    for dead_letter in clean:
        before = latest.get(dead_letter.message_id)
        earlier = _as_known(before) if before else known.get(dead_letter.message_id)
        if not _same_death(dead_letter, earlier):
            latest[dead_letter.message_id] = _joined(dead_letter, earlier)
    _replace(connection, list(latest.values()), known, now=now)


def failed_again(connection: duckdb.DuckDBPyConnection, dead_letter: DeadLetter, *, now: float) -> bool:
    """A replay of this dead letter failed: one death and one replay more. False when nobody knows the letter."""
    if not _known(connection, [dead_letter.message_id]):
        return False
    keep(connection, [dead_letter], now=now)
    connection.execute(_COUNT_REPLAY, [dead_letter.message_id])
    return True


def _known(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, Known]:
    dead_letters = fetch(connection, "dead_letters", _LETTER, ids)
    bodies = fetch(connection, "dead_letter_bodies", _BODY, list(dead_letters))
    return {
        message_id: (
            *(row[name] for name in _LETTER[1:]),
            codec.read_attempts(bodies[message_id]["attempts"]) if message_id in bodies else (),
        )
        for message_id, row in dead_letters.items()
    }


def _as_known(dead_letter: DeadLetter) -> Known:
    return (
        dead_letter.failed_at,
        dead_letter.accepted_at,
        dead_letter.replay_count,
        dead_letter.quarantined,
        None,
        dead_letter.attempts,
    )


def _same_death(dead_letter: DeadLetter, earlier: Known | None) -> bool:
    return (
        earlier is not None
        and dead_letter.failed_at == earlier[0]
        and {*dead_letter.attempts} <= {*earlier[-1]}
    )


def _joined(dead_letter: DeadLetter, earlier: Known | None) -> DeadLetter:
    if earlier is None:
        return replace(dead_letter, state="dead")
    _, accepted_at, replay_count, quarantined, _, attempts = earlier
    return replace(
        dead_letter,
        state="dead",
        accepted_at=accepted_at,
        replay_count=replay_count,
        quarantined=quarantined,
        attempts=tuple(dict.fromkeys((*attempts, *dead_letter.attempts))),
    )


def _replace(
    connection: duckdb.DuckDBPyConnection,
    dead_letters: Sequence[DeadLetter],
    known: dict[str, Known],
    *,
    now: float,
) -> None:
    if again := [dead_letter.message_id for dead_letter in dead_letters if dead_letter.message_id in known]:
        for table in ("dead_letters", "dead_letter_bodies"):
            forget(connection, table, again)
    rows = [
        codec.written_row(dead_letter, now=now, operation_id=_operation(known.get(dead_letter.message_id)))
        for dead_letter in dead_letters
    ]
    insert(connection, "dead_letters", codec.WRITTEN_COLUMNS, rows)
    insert(connection, "dead_letter_bodies", codec.BODY_COLUMNS, list(map(codec.body_row, dead_letters)))


def _operation(known: Known | None) -> str | None:
    return known[4] if known else None

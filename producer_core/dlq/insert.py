"""Write dead letters to the store: as a new row, or merged into the row that the message already has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from producer_core.dlq import codec, lookup, replay_waves
from producer_core.dlq.event_lookup import find_events
from producer_core.dlq.lookup import delete, fetch
from producer_core.dlq.published_verdict import PUBLISHED
from producer_core.dlq.revisions import revision as revisions
from producer_core.events import SAFE_VERDICTS, Attempt, DeadLetter
from producer_core.store import safe_verdicts
from producer_core.store.merge import insert

if TYPE_CHECKING:
    import duckdb

_BODY_COLUMNS = ("message_id", "attempts")
_ORIGINAL_COLUMNS = ("message_id", "value", "headers", "timestamp_ms")
_COUNT_REPLAY = "UPDATE dead_letters SET replay_count = replay_count + 1 WHERE message_id = ?"


class Stored(NamedTuple):
    """What the store keeps of a message that becomes a dead letter again. The first fields are columns of `dead_letters`."""

    failed_at: float
    accepted_at: float
    replay_count: int
    quarantined: bool
    operation_id: str | None
    application: str
    first_failed_at: float | None
    application_version: str
    attempts: tuple[Attempt, ...]


_MERGED_COLUMNS = Stored._fields[:-1]


def write(
    connection: duckdb.DuckDBPyConnection,
    dead_letters: Iterable[DeadLetter],
    *,
    now: float,
    first_failures: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Write the dead letters within the caller's transaction.

    `first_failures`: by id, when a new dead letter failed for the first time, if that is earlier than its failure.
    """
    encodable = [codec.encodable(dead_letter) for dead_letter in dead_letters]
    ids = [dead_letter.message_id for dead_letter in encodable]
    if replay_waves.claimed_by_wave(connection, ids):
        # The replay then still has a record that fails again.
        replay_waves.write_all_claims(connection)
    stored = _stored(connection, ids)
    latest: dict[str, DeadLetter] = {}
    doubtful: set[str] = set()
    for dead_letter in encodable:
        before = latest.get(dead_letter.message_id)
        earlier = _as_stored(before) if before else stored.get(dead_letter.message_id)
        if not _is_same_failure(dead_letter, earlier):
            latest[dead_letter.message_id] = _merged(dead_letter, earlier)
        elif dead_letter.verdict_reason.startswith(PUBLISHED):  # since it was written for the first time
            doubtful.add(dead_letter.message_id)
    written = _with_originals(connection, list(latest.values()), stored)
    _replace(connection, written, stored, now=now, first_failures=first_failures)
    safe_again = [one for one in stored if one in latest and latest[one].verdict in SAFE_VERDICTS]
    doubtful |= _published(connection, safe_again)
    if doubtful:
        safe_verdicts.revoke(connection, PUBLISHED, *lookup.id_in(list(doubtful)))


def _published(connection: duckdb.DuckDBPyConnection, ids: list[str]) -> set[str]:
    """Return those of the ids that were published to a dead-letter topic, or whose publication began."""
    return {event.message_id for event in find_events(connection, ids, ("publishing", "published"))}


def _with_originals(
    connection: duckdb.DuckDBPyConnection, dead_letters: list[DeadLetter], stored: dict[str, Stored]
) -> list[DeadLetter]:
    """Return the dead letters as they are written: an edited one keeps its original record, whatever was sent, and one
    whose edit has an id of its own stays archived."""
    known = [one.message_id for one in dead_letters if one.message_id in stored]
    edited, replaced = revisions.current(connection, known), revisions.replaced(connection, known)
    if not edited and not replaced:
        return dead_letters
    keys = fetch(connection, "dead_letters", ("message_id", "key"), list(edited))
    bodies = fetch(connection, "dead_letter_bodies", _ORIGINAL_COLUMNS, list(edited))
    return [
        replace(
            one,
            state="archived" if one.message_id in replaced else one.state,
            replayable=one.replayable or one.message_id in edited,
            **(_original(keys[one.message_id], bodies[one.message_id]) if one.message_id in bodies else {}),
        )
        for one in dead_letters
    ]


def _original(row: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": row["key"],
        "value": body["value"],
        "headers": codec.read_headers(body["headers"]),
        "timestamp_ms": body["timestamp_ms"],
    }


def write_failed_replay(
    connection: duckdb.DuckDBPyConnection, dead_letter: DeadLetter, *, now: float
) -> bool:
    """Write a dead letter whose replay failed, and count the replay. Return False for an unknown id."""
    if not _stored(connection, [dead_letter.message_id]):
        return False
    write(connection, [dead_letter], now=now)
    connection.execute(_COUNT_REPLAY, [dead_letter.message_id])
    return True


def _stored(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, Stored]:
    dead_letters = fetch(connection, "dead_letters", ("message_id", *_MERGED_COLUMNS), ids)
    bodies = fetch(connection, "dead_letter_bodies", _BODY_COLUMNS, list(dead_letters))
    return {
        message_id: Stored(
            **{name: row[name] for name in _MERGED_COLUMNS},
            attempts=codec.read_attempts(bodies[message_id]["attempts"]) if message_id in bodies else (),
        )
        for message_id, row in dead_letters.items()
    }


def _as_stored(dead_letter: DeadLetter) -> Stored:
    return Stored(
        failed_at=dead_letter.failed_at,
        accepted_at=dead_letter.accepted_at,
        replay_count=dead_letter.replay_count,
        quarantined=dead_letter.quarantined,
        operation_id=None,
        application=dead_letter.application,
        first_failed_at=None,
        application_version=dead_letter.application_version,
        attempts=dead_letter.attempts,
    )


def _is_same_failure(dead_letter: DeadLetter, earlier: Stored | None) -> bool:
    return (
        earlier is not None
        and dead_letter.failed_at == earlier.failed_at
        and {*dead_letter.attempts} <= {*earlier.attempts}
    )


def _merged(dead_letter: DeadLetter, earlier: Stored | None) -> DeadLetter:
    if earlier is None:
        return dead_letter if dead_letter.state == "dead" else replace(dead_letter, state="dead")
    own = earlier.application in ("", dead_letter.application)  # another application may have replayed it
    return replace(
        dead_letter,
        state="dead",
        accepted_at=earlier.accepted_at,
        replay_count=earlier.replay_count,
        quarantined=earlier.quarantined,
        application=earlier.application or dead_letter.application,
        application_version=(own and dead_letter.application_version) or earlier.application_version or "",
        attempts=tuple(dict.fromkeys((*earlier.attempts, *dead_letter.attempts))),
    )


def _replace(
    connection: duckdb.DuckDBPyConnection,
    dead_letters: Sequence[DeadLetter],
    stored: dict[str, Stored],
    *,
    now: float,
    first_failures: Mapping[str, float],
) -> None:
    if replaced := [one.message_id for one in dead_letters if one.message_id in stored]:
        for table in ("dead_letters", "dead_letter_bodies"):
            delete(connection, table, replaced)
    rows = [
        (
            *codec.written_row(
                dead_letter, now=now, operation_id=_operation(stored.get(dead_letter.message_id))
            ),
            _first_failure(stored.get(dead_letter.message_id)) or first_failures.get(dead_letter.message_id),
        )
        for dead_letter in dead_letters
    ]
    insert(connection, "dead_letters", (*codec.WRITTEN_COLUMNS, "first_failed_at"), rows)
    insert(connection, "dead_letter_bodies", codec.BODY_COLUMNS, list(map(codec.body_row, dead_letters)))


def _operation(stored: Stored | None) -> str | None:
    return stored.operation_id if stored else None


def _first_failure(stored: Stored | None) -> float | None:
    """Return when a message that fails again became a dead letter for the first time."""
    if stored is None:
        return None
    return stored.failed_at if stored.first_failed_at is None else stored.first_failed_at

"""The timeline of a dead letter: everything that is known to have happened to it, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core.dlq.codec import BODY_COLUMNS, LETTER_COLUMNS, read_dead_letter
from producer_core.dlq.lookup import fetch
from producer_core.events import Attempt, DeadLetter

if TYPE_CHECKING:
    import duckdb

    from producer_core.store import Store

_RECORDS = "SELECT operation_id, state, text, settled_at FROM operation_records WHERE message_id = ?"
_OPERATIONS = """
SELECT operation_id, who, origin, created_at, reason FROM operations
WHERE operation_id IN (SELECT unnest(?)) ORDER BY created_at"""

_EVENTS = (
    "SELECT happened_at, what, who, origin, text FROM letter_events WHERE message_id = ? ORDER BY happened_at"
)

_SAID = {
    "acknowledged": "acknowledged",
    "landed": "landed",
    "failed": "failed again",
    "skipped": "skipped",
}
_ORDER = ("read", "accepted", "malformed", "attempt failed", "failed again", "dead", "replay planned")
"""Of one moment, in this order; everything else comes after."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One thing that happened: when (seconds since 1970), a word for it, who did it, and a sentence.

    `what` is accepted, attempt failed (of an input that never became a message: read, malformed), dead, quarantined, replay planned, being sent, acknowledged, landed, failed
    again, skipped, archived, restored, purged, revealed, or the word that another act was written with. `who` is an
    operator, or the producer; None for what nobody did. Texts may quote an error: mask them for people.
    """

    at: float
    what: str
    who: str | None
    text: str


def timeline(store: Store, message_id: str) -> tuple[TimelineEvent, ...]:
    """A dead letter's whole life: accepted, attempts, dead, replays, acts of operators; () for an unknown id.

    Of a death that a later one replaced, its last attempt is what is left.
    """
    with store.borrow() as connection:
        rows = fetch(connection, "dead_letters", (*LETTER_COLUMNS,), [message_id])
        if not rows:
            return ()
        row = rows[message_id]
        body = fetch(connection, "dead_letter_bodies", BODY_COLUMNS, [message_id]).get(message_id)
        replays = _replays(connection, message_id)
        events = connection.execute(_EVENTS, [message_id]).fetchall()
    dead_letter = read_dead_letter(row, body)
    moments = [
        *_beginning(dead_letter),
        *_deaths(dead_letter, [replay["created_at"] for replay in replays]),
        *(moment for replay in replays for moment in _replay(replay, row)),
        *(TimelineEvent(at, what, who, text or f"by {origin}") for at, what, who, origin, text in events),
    ]
    return tuple(sorted(moments, key=lambda moment: (moment.at, _rank(moment.what))))


def _replays(connection: duckdb.DuckDBPyConnection, message_id: str) -> list[dict[str, Any]]:
    """Two questions: a join keeps DuckDB from using the index of message ids."""
    records = {record["operation_id"]: record for record in _named(connection, _RECORDS, message_id)}
    operations = _named(connection, _OPERATIONS, [*records])
    return [{**operation, **records[operation["operation_id"]]} for operation in operations]


def _named(connection: duckdb.DuckDBPyConnection, sql: str, given: Any) -> list[dict[str, Any]]:
    found = connection.execute(sql, [given])
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _beginning(dead_letter: DeadLetter) -> Iterator[TimelineEvent]:
    """Accepted, and each attempt; what never became a message was only read."""
    where = f"for {dead_letter.topic}, on {dead_letter.host}"
    if not dead_letter.never_a_message:
        yield TimelineEvent(dead_letter.accepted_at, "accepted", dead_letter.producer_id, where)
        yield from _attempts(dead_letter.attempts)
        return
    source = f"{dead_letter.source}, " if dead_letter.source else ""
    yield TimelineEvent(dead_letter.accepted_at, "read", dead_letter.producer_id, f"{source}{where}")
    for found in dead_letter.attempts:
        yield TimelineEvent(found.failed_at, "malformed", None, found.text)


def _attempts(attempts: Sequence[Attempt]) -> Iterator[TimelineEvent]:
    for number, attempt in enumerate(attempts, start=1):
        yield TimelineEvent(
            attempt.failed_at, "attempt failed", None, f"attempt {number}: {attempt.code}: {attempt.text}"
        )


def _deaths(dead_letter: DeadLetter, replays: Sequence[float]) -> Iterator[TimelineEvent]:
    """The last death with its verdict; an earlier one, before the first replay, from its last attempt."""
    if replays and replays[0] < dead_letter.failed_at:
        before = [attempt for attempt in dead_letter.attempts if attempt.failed_at <= replays[0]]
        if before:
            yield TimelineEvent(before[-1].failed_at, "dead", None, f"after {before[-1].code}")
    verdict = f"{dead_letter.verdict}: {dead_letter.verdict_reason}"
    yield TimelineEvent(dead_letter.failed_at, "dead", None, verdict)
    if dead_letter.quarantined:
        yield TimelineEvent(
            dead_letter.failed_at,
            "quarantined",
            None,
            f"it failed again in {dead_letter.replay_count} replays",
        )


def _replay(replay: dict[str, Any], row: dict[str, Any]) -> Iterator[TimelineEvent]:
    operation = replay["operation_id"]
    why = f": {replay['reason']}" if replay["reason"] else ""
    yield TimelineEvent(
        replay["created_at"], "replay planned", replay["who"], f"{operation} by {replay['origin']}{why}"
    )
    if replay["state"] == "claimed" and row["operation_id"] == operation:
        yield TimelineEvent(row["state_at"], "being sent", None, f"replay {operation}")
    elif replay["state"] in _SAID:
        at = replay["created_at"] if replay["settled_at"] is None else replay["settled_at"]
        yield TimelineEvent(at, _SAID[replay["state"]], None, _outcome(operation, replay, row))


def _outcome(operation: str, replay: dict[str, Any], row: dict[str, Any]) -> str:
    if replay["state"] in ("acknowledged", "landed") and row["operation_id"] == operation:
        place = f"partition {row['landed_partition']}, offset {row['landed_offset']}"
        known = row["landed_offset"] is not None
        where = f" at {place}" if known else ""
        return f"replay {operation}: {'on its topic' if known else 'the broker has it'}{where}"
    return f"replay {operation}" + (f": {replay['text']}" if replay["text"] else "")


def _rank(what: str) -> int:
    return _ORDER.index(what) if what in _ORDER else len(_ORDER)

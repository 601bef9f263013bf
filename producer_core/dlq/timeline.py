"""Assemble the timeline of a dead letter: all its recorded events, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
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

_OUTCOMES = {
    "acknowledged": "acknowledged",
    "landed": "landed",
    "failed": "failed again",
    "skipped": "skipped",
}
_ORDER = ("read", "accepted", "malformed", "attempt failed", "failed again", "dead", "replay planned")
"""The order of events with the same time; all others follow."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One event: its time (seconds since 1970), its type, the actor and a text.

    `what` is accepted, attempt failed (for malformed input: read, malformed), dead, quarantined, replay planned, being
    sent, acknowledged, landed, failed again, skipped, archived, restored, purged, revealed, or another type in
    `letter_events`. `who` is an operator, the producer, or None. Texts may quote an error: mask them before display.
    """

    at: float
    what: str
    who: str | None
    text: str


def timeline(store: Store, message_id: str) -> tuple[TimelineEvent, ...]:
    """Return all events of a dead letter, from acceptance to operators' changes; () for an unknown id.

    Of a failure before a replay, only the last attempt is known.
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
    timeline_events = [
        *_sending_events(dead_letter),
        *_failure_events(dead_letter, [replay["created_at"] for replay in replays]),
        *(event for replay in replays for event in _replay_events(replay, row)),
        *(TimelineEvent(at, what, who, text or f"via {origin}") for at, what, who, origin, text in events),
    ]
    return tuple(sorted(timeline_events, key=lambda event: (event.at, _rank(event.what))))


def _replays(connection: duckdb.DuckDBPyConnection, message_id: str) -> list[dict[str, Any]]:
    """Read the replays with two queries, because DuckDB does not use the index on message ids in a join."""
    records = {record["operation_id"]: record for record in _rows(connection, _RECORDS, message_id)}
    operations = _rows(connection, _OPERATIONS, [*records])
    return [{**operation, **records[operation["operation_id"]]} for operation in operations]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, value: Any) -> list[dict[str, Any]]:
    found = connection.execute(sql, [value])
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _sending_events(dead_letter: DeadLetter) -> Iterator[TimelineEvent]:
    """Yield the acceptance and each attempt; for malformed input, the read and its errors."""
    where = f"for {dead_letter.topic}, on {dead_letter.host}"
    if not dead_letter.never_a_message:
        yield TimelineEvent(dead_letter.accepted_at, "accepted", dead_letter.producer_id, where)
        yield from _attempts(dead_letter.attempts)
        return
    source = f"{dead_letter.source}, " if dead_letter.source else ""
    yield TimelineEvent(dead_letter.accepted_at, "read", dead_letter.producer_id, f"{source}{where}")
    for attempt in dead_letter.attempts:
        yield TimelineEvent(attempt.failed_at, "malformed", None, attempt.text)


def _attempts(attempts: Sequence[Attempt]) -> Iterator[TimelineEvent]:
    for number, attempt in enumerate(attempts, start=1):
        yield TimelineEvent(
            attempt.failed_at, "attempt failed", None, f"attempt {number}: {attempt.code}: {attempt.text}"
        )


def _failure_events(dead_letter: DeadLetter, replays: Sequence[float]) -> Iterator[TimelineEvent]:
    """Yield the last failure with its verdict, and the failure before the first replay from its last attempt."""
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
            f"failed again in {plural(dead_letter.replay_count, 'replay')}",
        )


def _replay_events(replay: dict[str, Any], row: dict[str, Any]) -> Iterator[TimelineEvent]:
    operation = replay["operation_id"]
    why = f": {replay['reason']}" if replay["reason"] else ""
    yield TimelineEvent(
        replay["created_at"], "replay planned", replay["who"], f"{operation} via {replay['origin']}{why}"
    )
    if replay["state"] == "claimed" and row["operation_id"] == operation:
        yield TimelineEvent(row["state_at"], "being sent", None, f"replay {operation}")
    elif replay["state"] in _OUTCOMES:
        at = replay["created_at"] if replay["settled_at"] is None else replay["settled_at"]
        yield TimelineEvent(at, _OUTCOMES[replay["state"]], None, _outcome(operation, replay, row))


def _outcome(operation: str, replay: dict[str, Any], row: dict[str, Any]) -> str:
    if replay["state"] in ("acknowledged", "landed") and row["operation_id"] == operation:
        if row["landed_offset"] is None:
            return f"replay {operation}: on its topic, offset unknown"
        place = f"partition {row['landed_partition']}, offset {row['landed_offset']}"
        return f"replay {operation}: on its topic at {place}"
    return f"replay {operation}" + (f": {replay['text']}" if replay["text"] else "")


def _rank(what: str) -> int:
    return _ORDER.index(what) if what in _ORDER else len(_ORDER)

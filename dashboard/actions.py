"""What an operator may do from a page: each act is one call of producer_core, answered in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dashboard.access import actor as actor
from dashboard.access import may_act as may_act
from dashboard.access import user as user
from producer_core import replay
from producer_core.alerts import AlertLog, evaluate_store
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ProducerError
from producer_core.store import Store

ORIGIN = "dashboard"
AT_ONCE = 1_000
"""Up to so many letters are replayed by the first click, where every verdict is safe."""


@dataclass(frozen=True)
class Done:
    """How an act went. `operation_id` follows a replay, `undo` brings back what a clear put aside."""

    ok: bool
    text: str
    operation_id: str | None = None
    undo: tuple[DeadLetterFilter, float] | None = None


def selected(where: DeadLetterFilter, ids: tuple[str, ...]) -> DeadLetterFilter:
    """What an act is about: the letters chosen by hand, else everything the filter matches now."""
    return replace(where, ids=ids) if ids else where


def start_replay(store: Store, where: DeadLetterFilter) -> Done:
    """Plan a replay; the live producer that holds the credentials carries it out."""
    try:
        operation = replay.plan(store, where, who=actor(), origin=ORIGIN, allow_quarantined=bool(where.ids))
    except ProducerError as error:
        return Done(False, str(error))
    if operation.ended:
        return Done(True, operation.message or "Nothing to replay.", operation.operation_id)
    return Done(True, f"Replaying {operation.total:,} …", operation.operation_id)


def follow(store: Store, operation_id: str) -> replay.Operation:
    """How a replay stands."""
    return replay.get(store, operation_id)


def cancel_replay(store: Store, operation_id: str) -> Done:
    try:
        operation = replay.cancel(store, operation_id, who=actor(), origin=ORIGIN)
    except ProducerError as error:
        return Done(False, str(error))
    return Done(True, operation.message or "Is being cancelled.", operation_id)


def clear(store: Store, where: DeadLetterFilter) -> Done:
    """Archive; nothing is deleted, and `undo` brings exactly these back."""
    try:
        result = DeadLetters(store).archive(where, who=actor(), origin=ORIGIN)
    except ProducerError as error:
        return Done(False, str(error))
    return Done(True, result.text, undo=(where, result.moment))


def undo_clear(store: Store, undo: tuple[DeadLetterFilter, float]) -> Done:
    where, moment = undo
    try:
        result = DeadLetters(store).restore(where, who=actor(), origin=ORIGIN, moment=moment)
    except ProducerError as error:
        return Done(False, str(error))
    return Done(True, result.text)


def restore(store: Store, where: DeadLetterFilter) -> Done:
    """Bring archived letters back."""
    try:
        return Done(True, DeadLetters(store).restore(where, who=actor(), origin=ORIGIN).text)
    except ProducerError as error:
        return Done(False, str(error))


def acknowledge(store: Store, alert_id: str) -> Done:
    """Say that somebody looks after an alert."""
    try:
        changed = AlertLog(store).acknowledge(alert_id, who=actor(), origin=ORIGIN)
    except ProducerError as error:
        return Done(False, str(error))
    return Done(changed, "Acknowledged." if changed else "Somebody has acknowledged it before.")


_WATCH_EVERY = 5.0
_watched: dict[str, float] = {}


def watch(store: Store, now: float) -> None:
    """Evaluate the store's own alerts every few seconds, where no other process does."""
    key = str(store.path)
    if now - _watched.get(key, 0.0) >= _WATCH_EVERY:
        _watched[key] = now
        evaluate_store(store, now)

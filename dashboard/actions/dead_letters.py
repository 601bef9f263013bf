"""Act on dead letters: archive and restore."""

from __future__ import annotations

from dataclasses import replace

from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store


def selected(where: DeadLetterFilter, ids: tuple[str, ...]) -> DeadLetterFilter:
    """Return the filter for an action: the selected dead letters, or all that the filter matches if none is selected."""
    return replace(where, ids=ids) if ids else where


def clear(
    store: Store, where: DeadLetterFilter, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Archive dead letters. Nothing is deleted; `undo` of the result restores exactly these."""

    def act(name: str) -> ActionResult:
        result = DeadLetters(store).archive(where, who=name, origin=origin)
        return ActionResult(True, result.text, undo=(where, result.moment) if result.count else None)

    return attempt(store, "archive", where.to_query(), act, who=who, origin=origin)


def undo_clear(
    store: Store, undo: tuple[DeadLetterFilter, float], *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Restore exactly the dead letters that one clear archived."""
    where, moment = undo

    def act(name: str) -> ActionResult:
        return ActionResult(
            True, DeadLetters(store).restore(where, who=name, origin=origin, moment=moment).text
        )

    return attempt(store, "restore", where.to_query(), act, who=who, origin=origin)


def restore(
    store: Store, where: DeadLetterFilter, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Restore archived dead letters."""

    def act(name: str) -> ActionResult:
        return ActionResult(True, DeadLetters(store).restore(where, who=name, origin=origin).text)

    return attempt(store, "restore", where.to_query(), act, who=who, origin=origin)

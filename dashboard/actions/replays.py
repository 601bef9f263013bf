"""Acts on replays: begin, look ahead, go, pause, resume, cancel. A live process with credentials carries them out."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from producer_core import replay
from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.dashboard.wording.replays import already_planned, count_changed, none_pending
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ReplayError
from producer_core.replay import Inconclusive, Newer, Operation
from producer_core.replay.guard import CANARY
from producer_core.store import Store


def start_replay(
    store: Store,
    where: DeadLetterFilter,
    *,
    shown: int | None = None,
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """One click: it is looked ahead, and goes on by itself where there is nothing to ask; else it waits for `go_replay`
    like a dry run. `shown` is the number that the person saw.

    So few that a canary would be most of them go without one.
    """
    return _begin(store, where, shown=shown, who=who, origin=origin, go_by_itself=True)


def look_ahead(
    store: Store,
    where: DeadLetterFilter,
    *,
    shown: int | None = None,
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """The dry run: dead letters frozen, topics looked at; nothing is sent before `go_replay`."""
    return _begin(store, where, shown=shown, who=who, origin=origin)


def _begin(
    store: Store,
    where: DeadLetterFilter,
    *,
    shown: int | None,
    who: str | None,
    origin: str,
    go_by_itself: bool = False,
    quarantined: bool = False,
) -> ActionResult:
    def act(name: str) -> ActionResult:
        dead_letters, began = DeadLetters(store), time.time()
        count = dead_letters.count(where)
        if not count and (gone := _gone(store, where)):
            return ActionResult(False, gone)
        operation = replay.plan(
            store,
            where,
            who=name,
            origin=origin,
            check_first=True,
            go_by_itself=go_by_itself,
            canary=0 if count <= CANARY else None,
            allow_quarantined=quarantined,
            join=True,
        )
        there = operation.created_at < began
        note = already_planned(operation, began) if there else count_changed(shown, operation.total)
        if operation.ended:
            return ActionResult(
                True, operation.message or "Nothing to replay.", operation.operation_id, note=note
            )
        return ActionResult(True, f"Replaying {operation.total:,} …", operation.operation_id, note=note)

    return attempt(store, "replay", where.to_query(), act, who=who, origin=origin)


def _gone(store: Store, where: DeadLetterFilter) -> str:
    """Why there is nothing to replay, unless a replay of just these is under way."""
    if any(operation.selection == replay.selection_text(where) for operation in replay.live(store)):
        return ""
    if not where.ids:
        return "Nothing waits here any more: somebody was faster."
    return none_pending(DeadLetters(store).count_by(DeadLetterFilter(state=None, ids=where.ids), "state"))


def with_quarantined(store: Store, operation_id: str, yes: bool) -> ActionResult:
    """The dry run anew, with or without dead letters that failed again and again."""

    def act(name: str) -> ActionResult:
        before = replay.get(store, operation_id)
        if before.state not in ("checking", "ready"):
            raise ReplayError(f"The replay {operation_id} is {before.state}: it was begun as it is.")
        if before.by_spark:  # what it selects of a file or a topic is known to its command only
            raise ReplayError(
                f"The replay {operation_id} is carried out by Spark, so it cannot be planned anew from here.",
                fix="Cancel it, and give its command again with --include-quarantined.",
            )
        replay.cancel(store, operation_id, who=name, origin=ORIGIN)
        where = DeadLetterFilter.from_query(before.query)
        return _begin(store, where, shown=None, who=name, origin=ORIGIN, quarantined=yes)

    return attempt(store, "replay", {"operation": operation_id}, act, who=None, origin=ORIGIN)


def follow(store: Store, operation_id: str) -> Operation:
    """How a replay stands."""
    return replay.get(store, operation_id)


def go_replay(
    store: Store,
    operation_id: str,
    *,
    newer: Newer | None = None,
    inconclusive: Inconclusive | None = None,
    rate: float | None = None,
    canary: int | None = None,
    stop_percent: float | None = None,
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """Start what was looked ahead, with what was chosen on the way."""
    act = partial(
        replay.go, newer=newer, inconclusive=inconclusive, rate=rate, canary=canary, stop_percent=stop_percent
    )
    return _switch(store, operation_id, "go", act, who=who, origin=origin)


def pause_replay(
    store: Store, operation_id: str, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Send nothing more for now; what is on its way is settled."""
    return _switch(store, operation_id, "pause", replay.pause, who=who, origin=origin)


def resume_replay(
    store: Store,
    operation_id: str,
    *,
    rate: float | None = None,
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """Go on with what was paused, at another rate where one is given."""
    return _switch(store, operation_id, "resume", partial(replay.resume, rate=rate), who=who, origin=origin)


def cancel_replay(
    store: Store, operation_id: str, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """End it for good; what was not sent stays a dead letter."""
    return _switch(store, operation_id, "cancel", replay.cancel, who=who, origin=origin)


def _switch(
    store: Store,
    operation_id: str,
    verb: str,
    act: Callable[..., Operation],
    *,
    who: str | None,
    origin: str,
) -> ActionResult:
    def switched(name: str) -> ActionResult:
        done = act(store, operation_id, who=name, origin=origin)
        return ActionResult(True, done.message or "", operation_id)

    return attempt(store, f"replay_{verb}", {"operation": operation_id}, switched, who=who, origin=origin)

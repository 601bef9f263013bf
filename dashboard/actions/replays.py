"""Act on replays: plan, start, confirm, pause, resume and cancel. A live process with credentials runs them."""

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
    """Plan a replay that starts without confirmation if its preflight finds no question; else it waits for
    `confirm_replay`. `shown` is the number that the user saw on the button.

    A replay of no more records than a canary has runs without a canary.
    """
    return _plan(store, where, shown=shown, who=who, origin=origin, go_by_itself=True)


def plan_replay(
    store: Store,
    where: DeadLetterFilter,
    *,
    shown: int | None = None,
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """Plan a replay as a dry run: it freezes the selection and checks the topics, and sends only after `confirm_replay`."""
    return _plan(store, where, shown=shown, who=who, origin=origin)


def _plan(
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
        began = time.time()
        count = DeadLetters(store).count(where)
        if not count and (reason := _nothing_left(store, where)):
            return ActionResult(False, reason)
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
        existed = operation.created_at < began
        note = already_planned(operation, began) if existed else count_changed(shown, operation.total)
        if operation.ended:
            return ActionResult(
                True, operation.message or "Nothing to replay.", operation.operation_id, note=note
            )
        return ActionResult(True, f"Replaying {operation.total:,} …", operation.operation_id, note=note)

    return attempt(store, "replay", where.to_query(), act, who=who, origin=origin)


def _nothing_left(store: Store, where: DeadLetterFilter) -> str:
    """Return why there is nothing to replay; an empty string if a replay of the same selection is running."""
    if any(operation.selection == replay.selection_text(where) for operation in replay.live(store)):
        return ""
    if not where.ids:
        return "Nothing to replay: the selection was already handled."
    return none_pending(DeadLetters(store).count_by(DeadLetterFilter(state=None, ids=where.ids), "state"))


def include_quarantined(store: Store, operation_id: str, include: bool) -> ActionResult:
    """Cancel a dry run and plan it again, with or without quarantined dead letters."""

    def act(name: str) -> ActionResult:
        before = replay.get(store, operation_id)
        if before.state not in ("checking", "ready"):
            raise ReplayError(f"The replay {operation_id} is {before.state}, so its selection cannot change.")
        if before.by_spark:  # only its command knows what it selects from a file or a topic
            raise ReplayError(
                f"The replay {operation_id} runs in Spark, so the dashboard cannot plan it again.",
                fix="Cancel it, and run its command again with --include-quarantined.",
            )
        replay.cancel(store, operation_id, who=name, origin=ORIGIN)
        where = DeadLetterFilter.from_query(before.query)
        return _plan(store, where, shown=None, who=name, origin=ORIGIN, quarantined=include)

    return attempt(store, "replay", {"operation": operation_id}, act, who=None, origin=ORIGIN)


def get_replay(store: Store, operation_id: str) -> Operation:
    """Return the current state of a replay."""
    return replay.get(store, operation_id)


def confirm_replay(
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
    """Start a replay after its dry run, with the user's choices."""
    act = partial(
        replay.go, newer=newer, inconclusive=inconclusive, rate=rate, canary=canary, stop_percent=stop_percent
    )
    return _change_state(store, operation_id, "go", act, who=who, origin=origin)


def pause_replay(
    store: Store, operation_id: str, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Pause sending; records in flight are still settled."""
    return _change_state(store, operation_id, "pause", replay.pause, who=who, origin=origin)


def resume_replay(
    store: Store,
    operation_id: str,
    *,
    rate: float | None = None,
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """Resume a paused replay, at a new rate if one is given."""
    return _change_state(
        store, operation_id, "resume", partial(replay.resume, rate=rate), who=who, origin=origin
    )


def cancel_replay(
    store: Store, operation_id: str, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Cancel a replay permanently; records that were not sent remain dead letters."""
    return _change_state(store, operation_id, "cancel", replay.cancel, who=who, origin=origin)


def _change_state(
    store: Store,
    operation_id: str,
    verb: str,
    act: Callable[..., Operation],
    *,
    who: str | None,
    origin: str,
) -> ActionResult:
    def change(name: str) -> ActionResult:
        operation = act(store, operation_id, who=name, origin=origin)
        return ActionResult(True, operation.message or "", operation_id)

    return attempt(store, f"replay_{verb}", {"operation": operation_id}, change, who=who, origin=origin)

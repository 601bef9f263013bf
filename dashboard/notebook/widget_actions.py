"""Run the actions of the widget; each one is confirmed first and answered with a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

from producer_core._internal.actor import NOTEBOOK, current_actor
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ReplayError
from producer_core.replay import Operation, live
from producer_core.replay.dry_run import DryRun, dry_run
from producer_core.replay.handle import progress
from producer_core.store import Store

LATE = 6.0
"""Seconds after which a click that waited for a busy kernel is dropped."""

_BUSY = "The kernel was busy; nothing was done. Click again."


class Confirmation(TypedDict):
    """The question before an action: a title, its consequences worst first, and the button label.

    `target` is the fingerprint of a group of dead letters, or, for "go", the id of a replay. `code` has the action as
    code, with the labels of the links that copy it.
    """

    act: str
    target: str
    until: float | None
    shown: int
    title: str
    lines: list[str]
    yes: str
    code: list[tuple[str, str]]


@dataclass(frozen=True)
class ActionReply:
    """Holds the reply to one message from the browser.

    `operation` is the id of the replay shown, `progress` its settled share, and `actions` what the operator can do with
    it. `code` has the labels of the buttons, each with its action as code.
    """

    message: str = ""
    confirmation: Confirmation | None = None
    operation: str = ""
    progress: float | None = None
    actions: tuple[str, ...] = ()
    undo: bool = False
    code: tuple[tuple[str, list[tuple[str, str]]], ...] = ()


_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "checking": ("cancel",),
    "ready": ("decide", "cancel"),
    "planned": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
}
"""The actions on a replay, by its state."""


class WidgetActions:
    """Runs the actions of one widget on one store.

    One thread of the kernel calls it at a time, the main thread or a subshell. It shows the replay that the widget
    started, else a replay that has not ended, so that the operator can decide about a replay of a cell or of an earlier
    kernel. The filters of `view` restrict the dead letters that it replays and clears.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float] = time.time, *, view: View | None = None
    ) -> None:
        self._store = store
        self._view = view or View()
        self._clock = clock
        self._operation: str | None = None
        self._undo: tuple[DeadLetterFilter, float] | None = None
        self._unconfirmed = ""  # the replay started here whose preflight findings have not been confirmed yet

    def answer(self, message: Mapping[str, Any]) -> ActionReply:
        """Return the reply to one message; `at` is the kernel time of the state that the click refers to."""
        kind = str(message.get("type"))
        if kind == "prepare":
            return self._reply(confirmation=self._confirmation(message))
        acts: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "replay": self._replay,
            "clear": self._clear,
            "undo": self._undo_clear,
            "go": partial(self._switch, actions.confirm_replay),
            "pause": partial(self._switch, actions.pause_replay),
            "resume": partial(self._switch, actions.resume_replay),
            "cancel": partial(self._switch, actions.cancel_replay),
        }
        if kind not in acts:
            return self._reply()
        if self._clock() - float(message.get("at") or 0.0) > LATE:
            return self._reply(_BUSY)
        return self._reply(acts[kind](message))

    def _reply(self, message: str = "", confirmation: Confirmation | None = None) -> ActionReply:
        operation = self._current_operation()
        if operation is None:
            return ActionReply(message, confirmation, undo=self._undo is not None, code=self._code("", ()))
        if operation.state == "ready" and operation.operation_id == self._unconfirmed:
            operation, confirmation = self._after_preflight(operation, confirmation)
        share, status = self._progress(operation)
        available = _ACTIONS.get(operation.state, ())
        shown = operation.operation_id if available else ""
        undo, code = self._undo is not None, self._code(operation.operation_id, available)
        return ActionReply(message or status, confirmation, shown, share, available, undo, code)

    def _code(
        self, operation_id: str, available: Sequence[str]
    ) -> tuple[tuple[str, list[tuple[str, str]]], ...]:
        """Return the actions of the buttons as code. A bundle has none, because it is read-only."""
        if self._store.is_incident:
            return ()
        path = self._store.path
        found = [
            (name.capitalize(), act(path, operation_id))
            for name, act in (
                ("pause", action_code.pause),
                ("resume", action_code.resume),
                ("cancel", action_code.cancel),
            )
            if name in available
        ]
        undo = [("Undo", action_code.undo_clear(path, self._undo))] if self._undo is not None else []
        return tuple((name, code.texts) for name, code in [*found, *undo] if code)

    def _confirmation(self, message: Mapping[str, Any]) -> Confirmation:
        """Return a dry run of exactly what was shown; nothing is sent or written."""
        where, act = self._where(message), str(message.get("act"))
        if act == "go":
            return self._decision(self._shown_operation(message))
        count = DeadLetters(self._store).count(where)
        dead_letters = wording.plural(count, "dead letter")
        if act == "clear":
            them = wording.them(count)
            lines = [f"Moves {them} to the archive. Nothing is deleted; Undo restores {them}."]
            title, yes = f"Clear {dead_letters}?", f"Clear {count:,}"
        else:
            lines = list(dry_run(self._store, where).sentences)
            title, yes = f"Replay {dead_letters}?", f"Replay {count:,}"
        code = self._code_of_confirmation(act, where)
        if not count:
            title, lines, yes, code = "Already handled by someone else.", [], "", []
        target = str(message.get("target") or "")
        return Confirmation(
            act=act,
            target=target,
            until=where.until,
            shown=count,
            title=title,
            lines=lines,
            yes=yes,
            code=code,
        )

    def _code_of_confirmation(self, act: str, where: DeadLetterFilter) -> list[tuple[str, str]]:
        if self._store.is_incident:
            return []
        path = self._store.path
        code = (
            action_code.clear(path, where)
            if act == "clear"
            else action_code.replay(path, where, at_once=True)
        )
        return code.texts

    def _after_preflight(
        self, operation: Operation, confirmation: Confirmation | None
    ) -> tuple[Operation, Confirmation | None]:
        """Start a replay without preflight findings; doubtful records were already shown before the click."""
        self._unconfirmed = ""
        if not self._dry_run(operation).safe_but_doubtful:
            return operation, confirmation or self._decision(operation)
        actions.confirm_replay(self._store, operation.operation_id, who=current_actor(), origin=NOTEBOOK)
        return actions.get_replay(self._store, operation.operation_id), confirmation

    def _decision(self, operation: Operation | None) -> Confirmation:
        """Return the preflight findings for the operator's decision."""
        target, title, lines, yes = "", "This replay no longer needs a decision.", list[str](), ""
        code = action_code.NONE
        if operation is not None and operation.state == "ready":
            target = operation.operation_id
            run = self._dry_run(operation)
            title, lines = f"Replay {wording.plural(run.total, 'record')}?", list(run.sentences)
            yes = f"Replay {run.total:,}" if run.total else ""
            code = action_code.go(self._store.path, target) if run.total else code
        return Confirmation(
            act="go", target=target, until=None, shown=0, title=title, lines=lines, yes=yes, code=code.texts
        )

    def _dry_run(self, operation: Operation) -> DryRun:
        return dry_run(self._store, DeadLetterFilter(), operation=operation)

    def _replay(self, message: Mapping[str, Any]) -> str:
        done = actions.start_replay(
            self._store,
            self._where(message),
            shown=message.get("shown"),
            who=current_actor(),
            origin=NOTEBOOK,
        )
        self._operation, self._undo = done.operation_id, None
        # A note means that the replay differs from what was clicked, so it is not started automatically.
        self._unconfirmed = done.operation_id or "" if not done.note else ""
        return "" if done.ok and done.operation_id and not done.note else f"{done.text} {done.note}".strip()

    def _clear(self, message: Mapping[str, Any]) -> str:
        done = actions.clear(self._store, self._where(message), who=current_actor(), origin=NOTEBOOK)
        self._operation, self._undo = None, done.undo
        return done.text

    def _switch(self, act: Callable[..., actions.ActionResult], message: Mapping[str, Any]) -> str:
        operation = self._shown_operation(message)
        if operation is None:
            return "That replay has already finished; nothing was done."
        return act(self._store, operation.operation_id, who=current_actor(), origin=NOTEBOOK).text

    def _undo_clear(self, message: Mapping[str, Any]) -> str:
        if self._undo is None:
            return "Nothing to undo."
        undo, self._undo = self._undo, None
        return actions.undo_clear(self._store, undo, who=current_actor(), origin=NOTEBOOK).text

    def _shown_operation(self, message: Mapping[str, Any]) -> Operation | None:
        """Return the replay that the operator clicked on; None where the widget shows another one by now."""
        operation = self._current_operation()
        return (
            operation if operation is not None and operation.operation_id == message.get("target") else None
        )

    def _current_operation(self) -> Operation | None:
        """Return the replay to show: the one started here until its end was shown, else the latest that has not ended.

        Replays of the current user come first.
        """
        if self._operation is None:
            found = live(self._store)
            if not found:
                return None
            user = current_actor()
            self._operation = max(found, key=lambda one: (one.who == user, one.created_at)).operation_id
        try:
            return actions.get_replay(self._store, self._operation)
        except ReplayError:  # the store was replaced and does not have it
            self._operation = None
            return None

    def _progress(self, operation: Operation) -> tuple[float | None, str]:
        if operation.ended:
            self._operation = None
            return None, progress(operation)
        starter = "" if operation.who == current_actor() else f" Started by {operation.who}."
        if operation.state == "checking":
            return 0.0, f"Replaying: 0 of {operation.total:,}. Checking topics first.{starter}"
        if operation.state == "ready":
            return 0.0, f"Nothing sent yet. {self._dry_run(operation).sentences[0]}{starter}"
        share = (operation.total - operation.left) / max(operation.total, 1)
        return share, f"{progress(operation)}{starter}"

    def _where(self, message: Mapping[str, Any]) -> DeadLetterFilter:
        """Return the filter of a message; `until` excludes dead letters newer than the state shown."""
        return self._view.dead_letters(
            group=str(message.get("target") or "") or None, until=message.get("until")
        )

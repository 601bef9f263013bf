"""The desk: what a person may do from the widget, each act asked for twice and answered in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

from producer_core._internal.actor import NOTEBOOK, current_actor
from producer_core.dashboard import actions, wording
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ReplayError
from producer_core.replay import Operation, live
from producer_core.replay.dry_run import DryRun, dry_run
from producer_core.replay.handle import progress
from producer_core.store import Store

LATE = 6.0
"""Seconds after which a click that waited for a busy kernel is not done any more."""

_BUSY = "The kernel was busy, so nothing was done. Click again."


class Confirmation(TypedDict):
    """What a person is asked before an act: a heading, what it means worst first, and what the button says.

    `mark` is what the act is about: a group of dead letters, or, for "go", a replay.
    """

    act: str
    mark: str
    until: float | None
    shown: int
    title: str
    lines: list[str]
    yes: str


@dataclass(frozen=True)
class ActionReply:
    """How an act went; `following` is the replay that is shown, `progress` the share of it that is settled, `ways` what
    may be done about it."""

    said: str = ""
    question: Confirmation | None = None
    following: str = ""
    progress: float | None = None
    ways: tuple[str, ...] = ()
    undo: bool = False


_WAYS: Mapping[str, tuple[str, ...]] = {
    "checking": ("cancel",),
    "ready": ("decide", "cancel"),
    "planned": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
}
"""What a person may do about a replay, by its state."""


class WidgetActions:
    """The acts of one widget on one store; called by one thread of the kernel at a time, its main one or a subshell.

    It shows the replay that it began, else one that has not ended, so that one begun in a cell, or by a kernel that was
    restarted since, can be decided here.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._operation: str | None = None
        self._undo: tuple[DeadLetterFilter, float] | None = None
        self._asks = ""  # the replay that was just begun here: it asks by itself what its look ahead found

    def answer(self, message: Mapping[str, Any]) -> ActionReply:
        """What is said to one message of the browser; `at` is our own time that the click answers to."""
        kind = str(message.get("type"))
        if kind == "prepare":
            return self._with(question=self._question(message))
        acts: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "replay": self._replay,
            "clear": self._clear,
            "undo": self._take_back,
            "go": partial(self._switch, actions.confirm_replay),
            "pause": partial(self._switch, actions.pause_replay),
            "resume": partial(self._switch, actions.resume_replay),
            "cancel": partial(self._switch, actions.cancel_replay),
        }
        if kind not in acts:
            return self._with()
        if self._clock() - float(message.get("at") or 0.0) > LATE:
            return self._with(_BUSY)
        return self._with(acts[kind](message))

    def _with(self, said: str = "", question: Confirmation | None = None) -> ActionReply:
        operation = self._followed()
        if operation is None:
            return ActionReply(said, question, undo=self._undo is not None)
        if operation.state == "ready" and operation.operation_id == self._asks:
            operation, question = self._looked(operation, question)
        share, told = self._progress(operation)
        ways = _WAYS.get(operation.state, ())
        following = operation.operation_id if ways else ""
        return ActionReply(said or told, question, following, share, ways, self._undo is not None)

    def _question(self, message: Mapping[str, Any]) -> Confirmation:
        """A dry run of exactly what was seen; nothing is sent and nothing written."""
        where, act = _where(message), str(message.get("act"))
        if act == "go":
            return self._decision(self._shown(message))
        count = DeadLetters(self._store).count(where)
        dead_letters = wording.plural(count, "dead letter")
        if act == "clear":
            lines = ["They go to the archive. Nothing is deleted, and Undo brings them back."]
            title, yes = f"Clear {dead_letters}?", f"Clear {count:,}"
        else:
            lines = list(dry_run(self._store, where).sentences)
            title, yes = f"Replay {dead_letters}?", f"Replay {count:,}"
        if not count:
            title, lines, yes = "Nothing waits here any more: somebody was faster.", [], ""
        mark = str(message.get("mark") or "")
        return Confirmation(
            act=act, mark=mark, until=where.until, shown=count, title=title, lines=lines, yes=yes
        )

    def _looked(
        self, operation: Operation, question: Confirmation | None
    ) -> tuple[Operation, Confirmation | None]:
        """What follows the look ahead of a replay that was begun here; dead letters in doubt were told before the click."""
        self._asks = ""
        if not self._what_is_done(operation).safe_but_doubtful:
            return operation, question or self._decision(operation)
        actions.confirm_replay(self._store, operation.operation_id, who=current_actor(), origin=NOTEBOOK)
        return actions.get_replay(self._store, operation.operation_id), question

    def _decision(self, operation: Operation | None) -> Confirmation:
        """What a look ahead found, to be decided."""
        mark, title, lines, yes = "", "This replay waits for nobody any more.", list[str](), ""
        if operation is not None and operation.state == "ready":
            mark = operation.operation_id
            run = self._what_is_done(operation)
            title, lines = f"Replay {wording.plural(run.total, 'dead letter')}?", list(run.sentences)
            yes = f"Replay {run.total:,}" if run.total else ""
        return Confirmation(act="go", mark=mark, until=None, shown=0, title=title, lines=lines, yes=yes)

    def _what_is_done(self, operation: Operation) -> DryRun:
        return dry_run(self._store, DeadLetterFilter(), operation=operation)

    def _replay(self, message: Mapping[str, Any]) -> str:
        done = actions.start_replay(
            self._store, _where(message), shown=message.get("shown"), who=current_actor(), origin=NOTEBOOK
        )
        self._operation, self._undo = done.operation_id, None
        self._asks = (
            done.operation_id or "" if not done.note else ""
        )  # a note: it is wider than what was clicked
        return "" if done.ok and done.operation_id and not done.note else f"{done.text} {done.note}".strip()

    def _clear(self, message: Mapping[str, Any]) -> str:
        done = actions.clear(self._store, _where(message), who=current_actor(), origin=NOTEBOOK)
        self._operation, self._undo = None, done.undo
        return done.text

    def _switch(self, act: Callable[..., actions.ActionResult], message: Mapping[str, Any]) -> str:
        operation = self._shown(message)
        if operation is None:
            return "That replay has ended, and nothing was done to another."
        return act(self._store, operation.operation_id, who=current_actor(), origin=NOTEBOOK).text

    def _take_back(self, message: Mapping[str, Any]) -> str:
        if self._undo is None:
            return "There is nothing to take back."
        undo, self._undo = self._undo, None
        return actions.undo_clear(self._store, undo, who=current_actor(), origin=NOTEBOOK).text

    def _shown(self, message: Mapping[str, Any]) -> Operation | None:
        """The replay that a person saw who acts on it now; None where another is followed since."""
        operation = self._followed()
        return operation if operation is not None and operation.operation_id == message.get("mark") else None

    def _followed(self) -> Operation | None:
        """The replay that is shown: ours until its end was told, else the latest that has not ended, ours first."""
        if self._operation is None:
            found = live(self._store)
            if not found:
                return None
            me = current_actor()
            self._operation = max(found, key=lambda one: (one.who == me, one.created_at)).operation_id
        try:
            return actions.get_replay(self._store, self._operation)
        except ReplayError:  # the store was replaced, and knows nothing of it
            self._operation = None
            return None

    def _progress(self, operation: Operation) -> tuple[float | None, str]:
        if operation.ended:
            self._operation = None
            return None, progress(operation)
        whose = "" if operation.who == current_actor() else f" Begun by {operation.who}."
        if operation.state == "checking":
            return 0.0, f"Replaying: 0 of {operation.total:,}. Looking ahead on the topics first.{whose}"
        if operation.state == "ready":
            return 0.0, f"Nothing was sent yet. {self._what_is_done(operation).sentences[0]}{whose}"
        share = (operation.total - operation.left) / max(operation.total, 1)
        return share, f"{progress(operation)}{whose}"


def _where(message: Mapping[str, Any]) -> DeadLetterFilter:
    """`until` bounds what the person saw; what died after that is left alone."""
    return DeadLetterFilter(group=str(message.get("mark") or "") or None, until=message.get("until"))

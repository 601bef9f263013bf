"""The desk: what a person may do from the widget, each act asked for twice and answered in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from dashboard import actions, words
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.person import person
from producer_core.replay import Operation
from producer_core.replay.dry_run import dry_run
from producer_core.store import Store

ORIGIN = "notebook"
LATE = 6.0
"""Seconds after which a click that waited for a busy kernel is not done any more."""

_BUSY = "The kernel was busy, so nothing was done. Click again."


class Question(TypedDict):
    """What a person is asked before an act: a heading, what it means worst first, and what the button says."""

    act: str
    mark: str
    until: float | None
    shown: int
    title: str
    lines: list[str]
    yes: str


@dataclass(frozen=True)
class Answer:
    """How an act went; `progress` is the share of a replay that is settled."""

    said: str = ""
    question: Question | None = None
    progress: float | None = None
    undo: bool = False


class Desk:
    """The acts of one widget on one store; called by one thread of the kernel at a time, its main one or a subshell."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._operation: str | None = None
        self._undo: tuple[DeadLetterFilter, float] | None = None

    def answer(self, message: Mapping[str, Any]) -> Answer:
        """What is said to one message of the browser; `at` is our own time that the click answers to."""
        kind = str(message.get("type"))
        if kind == "prepare":
            return self._with(question=self._question(message))
        act = {
            "replay": self._replay,
            "clear": self._clear,
            "cancel": self._cancel,
            "undo": self._take_back,
        }.get(kind)
        if act is None:
            return self._with()
        if self._clock() - float(message.get("at") or 0.0) > LATE:
            return self._with(_BUSY)
        return self._with(act(message))

    def _with(self, said: str = "", question: Question | None = None) -> Answer:
        progress, told = self._progress()
        return Answer(said or told, question, progress, self._undo is not None)

    def _question(self, message: Mapping[str, Any]) -> Question:
        """A dry run of exactly what was seen; nothing is sent and nothing written."""
        where, act = _where(message), str(message.get("act"))
        count = DeadLetters(self._store).count(where)
        letters = words.plural(count, "dead letter")
        if act == "clear":
            lines = ["They go to the archive. Nothing is deleted, and Undo brings them back."]
            title, yes = f"Clear {letters}?", f"Clear {count:,}"
        else:
            lines = list(dry_run(self._store, where).sentences)
            title, yes = f"Replay {letters}?", f"Replay {count:,}"
        if not count:
            title, lines, yes = "Nothing waits here any more: somebody was faster.", [], ""
        mark = str(message.get("mark") or "")
        return Question(act=act, mark=mark, until=where.until, shown=count, title=title, lines=lines, yes=yes)

    def _replay(self, message: Mapping[str, Any]) -> str:
        done = actions.start_replay(
            self._store, _where(message), shown=message.get("shown"), who=person(), origin=ORIGIN
        )
        self._operation = done.operation_id
        self._undo = None
        return "" if done.ok and done.operation_id and not done.note else f"{done.text} {done.note}".strip()

    def _clear(self, message: Mapping[str, Any]) -> str:
        done = actions.clear(self._store, _where(message), who=person(), origin=ORIGIN)
        self._operation, self._undo = None, done.undo
        return done.text

    def _cancel(self, message: Mapping[str, Any]) -> str:
        if self._operation is None:
            return "No replay of this widget is under way."
        return actions.cancel_replay(self._store, self._operation, who=person(), origin=ORIGIN).text

    def _take_back(self, message: Mapping[str, Any]) -> str:
        if self._undo is None:
            return "There is nothing to take back."
        undo, self._undo = self._undo, None
        return actions.undo_clear(self._store, undo, who=person(), origin=ORIGIN).text

    def _progress(self) -> tuple[float | None, str]:
        if self._operation is None:
            return None, ""
        operation = actions.follow(self._store, self._operation)
        if operation.state == "checking":
            return 0.0, f"Replaying: 0 of {operation.total:,}. Looking ahead on the topics first."
        if operation.state == "ready":
            return 0.0, self._asked(operation)
        if not operation.ended:
            settled = operation.total - operation.left
            text = f"Replaying: {settled:,} of {operation.total:,}. {operation.message or ''}"
            return settled / max(operation.total, 1), text.strip()
        self._operation = None
        return None, operation.message or "Done."

    def _asked(self, operation: Operation) -> str:
        """What the look ahead found. That letters are in doubt was said before the click; the rest is decided on the page."""
        run = dry_run(self._store, DeadLetterFilter(), operation=operation)
        if run.safe_but_doubtful:
            actions.go_replay(self._store, operation.operation_id, who=person(), origin=ORIGIN)
            return "Replaying …"
        return f"Nothing was sent yet. {run.sentences[0]} Cancel it, or decide on the Replays page of the dashboard."


def _where(message: Mapping[str, Any]) -> DeadLetterFilter:
    """`until` bounds what the person saw; what died after that is left alone."""
    return DeadLetterFilter(group=str(message.get("mark") or "") or None, until=message.get("until"))

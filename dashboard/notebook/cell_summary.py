"""The watching of a cell: what became of the messages that a store's producers sent while it ran."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from producer_core._internal.html import page
from producer_core.dashboard import wording
from producer_core.dlq import DeadLetterFilter, DeadLetters, Groups
from producer_core.errors import StoreError
from producer_core.store import Store

_EVERY = 1.0
_SETTLED = 5.0
"""Seconds that the beginning and the end of a cell wait at most for the recorders, which write once a second."""


@dataclass(frozen=True)
class CellSummary:
    """What happened between two moments, in the numbers of the store."""

    seconds: float
    accepted: int
    acknowledged: int
    dead: int
    retried: int
    pending: int
    causes: Groups

    def __str__(self) -> str:
        counts = ((self.dead, "died"), (self.retried, "sent again"), (self.pending, "on their way"))
        more = "".join(f", {count:,} {word}" for count, word in counts if count)
        return f"In {wording.milliseconds(self.seconds)}: {self.accepted:,} accepted, {self.acknowledged:,} acknowledged{more}."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (one.count, one.code, ", ".join(one.topics), f"{one.meaning} {one.advice}") for one in self.causes
        ]
        return page(str(self), columns=("letters", "code", "topics", "what it means, what to do"), rows=rows)


class CellWatch:
    """Shows a line that follows the cell, and its end. The kernel is busy meanwhile, so a thread of ours draws it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)
        self._handle: Any = None

    def __enter__(self) -> Self:
        from IPython.display import display

        _wait_for_heartbeat(self._store, time.time())  # what was sent before this cell is not this cell's
        self._began, self._before = time.time(), _totals(self._store)
        self._handle = display(self.look(), display_id=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took = time.time() - self._began
        self._ended.set()
        self._thread.join(_EVERY)
        _wait_for_heartbeat(self._store, self._began + took)
        self._show(self.look(took))

    def look(self, seconds: float | None = None) -> CellSummary:
        now = _totals(self._store)
        gone = {
            name: now[name] - self._before[name] for name in ("accepted", "acknowledged", "dead", "retried")
        }
        since = DeadLetterFilter(state=None, since=self._began)
        return CellSummary(
            seconds=time.time() - self._began if seconds is None else seconds,
            pending=now["pending"],
            causes=DeadLetters(self._store).groups(since, limit=5),
            **gone,
        )

    def _follow(self) -> None:
        while not self._ended.wait(_EVERY):
            try:
                self._show(self.look())
            except StoreError:
                continue  # somebody else holds it for long: the next second tells

    def _show(self, watched: CellSummary) -> None:
        if self._handle is not None:
            self._handle.update(watched)


def _totals(store: Store) -> dict[str, int]:
    with store.borrow():
        totals = store.rows("totals")[0]
        running = [row for row in store.rows("producers", since=time.time() - 60) if row["closed_at"] is None]
    return {**totals, "pending": sum(row["pending"] for row in running)}


def _wait_for_heartbeat(store: Store, moment: float) -> None:
    """Until every producer that lives has told how it stood at the end, or a short while."""
    deadline, waiting = time.monotonic() + _SETTLED, threading.Event()
    while time.monotonic() < deadline:
        running = [row for row in store.rows("producers", since=moment - 10) if row["closed_at"] is None]
        if all(row["seen_at"] >= moment for row in running):
            return
        waiting.wait(0.1)

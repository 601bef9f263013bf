"""Summarize the messages that the producers of a store sent while a notebook cell ran."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from producer_core._internal.html import page
from producer_core.dashboard import wording
from producer_core.dlq import DeadLetterFilter, DeadLetters, Groups
from producer_core.errors import StoreError
from producer_core.metrics.heartbeat import ALIVE
from producer_core.store import Store

_REFRESH = 1.0
_HEARTBEAT_TIMEOUT = 10.0
"""Seconds to wait for the recorders at the beginning and the end of a cell; they write once a second while the store is read."""
_OWN_HEARTBEAT_TIMEOUT = 60.0
"""The same for producers of this process, which may be slow but cannot be gone."""


@dataclass(frozen=True)
class CellSummary:
    """Holds the changes in a store between two moments."""

    seconds: float
    accepted: int
    acknowledged: int
    dead: int
    retried: int
    pending: int
    causes: Groups

    def __str__(self) -> str:
        counts = ((self.dead, "failed"), (self.retried, "retried"), (self.pending, "pending"))
        more = "".join(f", {count:,} {name}" for count, name in counts if count)
        return f"In {wording.milliseconds(self.seconds)}: {self.accepted:,} accepted, {self.acknowledged:,} acknowledged{more}."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (one.count, one.code, ", ".join(one.topics), f"{one.meaning} {one.advice}") for one in self.causes
        ]
        return page(str(self), columns=("dead letters", "code", "topics", "meaning and advice"), rows=rows)


class CellWatch:
    """Displays a summary that is updated while the cell runs; a thread draws it because the kernel is busy."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="watch", daemon=True)
        self._handle: Any = None

    def __enter__(self) -> Self:
        from IPython.display import display

        _wait_for_heartbeat(self._store, time.time())  # excludes messages sent before this cell
        self._began, self._before = time.time(), _totals(self._store)
        self._handle = display(self.summary(), display_id=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took = time.time() - self._began
        self._ended.set()
        self._thread.join(_REFRESH)
        _wait_for_heartbeat(self._store, self._began + took)
        self._show(self.summary(took))

    def summary(self, seconds: float | None = None) -> CellSummary:
        """Return the changes since the beginning; `seconds` replaces the elapsed time."""
        now = _totals(self._store)
        changes = {
            name: now[name] - self._before[name] for name in ("accepted", "acknowledged", "dead", "retried")
        }
        since = DeadLetterFilter(state=None, since=self._began)
        return CellSummary(
            seconds=time.time() - self._began if seconds is None else seconds,
            pending=now["pending"],
            causes=DeadLetters(self._store).groups(since, limit=5),
            **changes,
        )

    def _refresh(self) -> None:
        while not self._ended.wait(_REFRESH):
            try:
                self._show(self.summary())
            except StoreError:
                continue  # another process holds the store; retry at the next refresh

    def _show(self, summary: CellSummary) -> None:
        if self._handle is not None:
            self._handle.update(summary)


def _totals(store: Store) -> dict[str, int]:
    with store.borrow():
        totals = store.rows("totals")[0]
        running = [row for row in store.rows("producers", since=time.time() - 60) if row["closed_at"] is None]
    return {**totals, "pending": sum(row["pending"] for row in running)}


def _wait_for_heartbeat(store: Store, moment: float) -> None:
    """Wait until every running producer has written its state as of `moment`, or until its timeout."""
    began, waiting = time.monotonic(), threading.Event()
    this_process = socket.gethostname(), os.getpid()
    while (waited := time.monotonic() - began) < _OWN_HEARTBEAT_TIMEOUT:
        running = store.rows("producers", since=moment - _OWN_HEARTBEAT_TIMEOUT)
        behind = [row for row in running if row["closed_at"] is None and row["seen_at"] < moment]
        alive = [row for row in behind if row["seen_at"] >= moment - ALIVE and waited < _HEARTBEAT_TIMEOUT]
        if not alive and not any((row["host"], row["pid"]) == this_process for row in behind):
            return
        waiting.wait(0.1)

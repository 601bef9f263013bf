"""A replay as a notebook has it: what it would do, shown before anything is sent, and what a person then decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from producer_core import replay
from producer_core._internal.actor import NOTEBOOK, current_actor
from producer_core.errors import ProducerError, ReplayError
from producer_core.replay.dry_run import DryRun, dry_run

if TYPE_CHECKING:
    from producer_core.replay import Inconclusive, Newer, Operation
    from producer_core.store import Store

UNDECIDED = ("checking", "ready")
_LOOK_EVERY = 0.1
_TO_DECIDE = "Nothing was sent yet. go() sends it, cancel() drops it."
_NEXT = {"checking": _TO_DECIDE, "ready": _TO_DECIDE, "paused": "Paused. resume() goes on, cancel() ends it."}
"""What a person may call, by the state that it is in."""


class Replay:
    """One replay, as it stands whenever it is shown. Nothing is sent before `go`; the dead letters are those of the plan.

    A live producer on the store carries it out, so it goes on when a cell is interrupted or its kernel ends.
    """

    def __init__(self, store: Store, operation_id: str) -> None:
        self.operation_id = operation_id
        self._store = store

    @property
    def operation(self) -> Operation:
        """All that the store says of it, as it is now."""
        return replay.get(self._store, self.operation_id)

    @property
    def state(self) -> str:
        return self.operation.state

    @property
    def ended(self) -> bool:
        return self.operation.ended

    @property
    def message(self) -> str:
        """The last thing worth saying of it, in a sentence."""
        return self.operation.message or ""

    def dry_run(self) -> DryRun:
        """What it would still do, worst first."""
        from producer_core.dlq import DeadLetterFilter

        return dry_run(self._store, DeadLetterFilter(), operation=self.operation)

    # what a person decides

    def go(
        self,
        *,
        newer: Newer | None = None,
        inconclusive: Inconclusive | None = None,
        rate: float | None = None,
        timeout: float = 60.0,
    ) -> Self:
        """Sends what the plan says, and waits for the end, or `timeout` seconds; it goes on after that.

        Some are sent first, and it stops itself where too many fail again. `newer` ("skip" or "send") says what becomes
        of a record whose key has a newer one, `inconclusive` ("keep" or "send") what becomes of one that may be on its topic
        and is not found there. A cell that runs twice sends nothing twice.
        """
        operation = self.looked(timeout).operation
        if operation.state == "checking":
            raise ReplayError(
                "Nobody has looked ahead yet, so nothing was sent.",
                fix="A producer on this store must be alive. Then call go() again.",
            )
        if operation.state not in ("planned", "running") and not operation.ended:
            replay.go(
                self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK, newer=newer,
                inconclusive=inconclusive, rate=rate,
            )  # fmt: skip  # refuses, in words, what is not ready
        return self.wait(timeout)

    def wait(self, timeout: float = 60.0) -> Self:
        """Until it has ended or waits for a person, or `timeout` seconds."""
        self._until(lambda one: one.ended or one.state in ("paused", "ready"), timeout)
        return self

    def pause(self) -> Self:
        """Send nothing more for now; what is on its way is settled."""
        replay.pause(self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK)
        return self

    def resume(self, *, rate: float | None = None) -> Self:
        """Go on with what was paused, at another rate where one is given; `wait` waits for it."""
        replay.resume(self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK, rate=rate)
        return self

    def cancel(self) -> Self:
        """End it for good; what was not sent stays a dead letter."""
        replay.cancel(self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK)
        return self

    def looked(self, timeout: float) -> Self:
        """Until somebody has looked at the topics, or `timeout` seconds."""
        self._until(lambda one: one.state != "checking", timeout)
        return self

    def _until(self, over: Callable[[Operation], bool], timeout: float) -> Operation:
        deadline, waiting = time.monotonic() + timeout, threading.Event()
        operation = self.operation
        while not over(operation) and time.monotonic() < deadline:
            waiting.wait(_LOOK_EVERY)
            operation = self.operation
        return operation

    # faces

    def __repr__(self) -> str:
        try:
            operation = self.operation
            said = self.dry_run().sentences if operation.state in UNDECIDED else (progress(operation),)
        except ProducerError as error:
            return str(error)
        return "\n".join(filter(None, (*said, _NEXT.get(operation.state))))

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        try:
            operation = self.operation
            page = (self.dry_run() if operation.state in UNDECIDED else operation)._repr_html_()
        except ProducerError as error:
            return html.page(str(error))
        return page + (html.page(_NEXT[operation.state]) if operation.state in _NEXT else "")


class Replays(list[Replay]):
    """Replays that have not ended; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        found = [one.operation for one in self]
        rows = [(one.operation_id, one.state, one.total, one.left, one.who, one.origin) for one in found]
        columns = ("replay", "state", "records", "left", "who", "where")
        return html.page(f"{len(rows):,} replays that have not ended", columns=columns, rows=rows)


def progress(operation: Operation) -> str:
    """How far it is, in a sentence."""
    if operation.ended:
        return operation.message or "Done."
    settled = operation.total - operation.left
    return f"Replaying: {settled:,} of {operation.total:,}. {operation.message or ''}".strip()


def live(store: Store) -> Replays:
    """Those that have not ended, the latest first."""
    return Replays(Replay(store, one.operation_id) for one in reversed(replay.live(store)))


def begin(store: Store, where: Any, *, rate: float | None, timeout: float) -> Replay:
    """Plans it, and waits until somebody has looked ahead on its topics; it goes no further by itself."""
    operation = replay.plan(
        store, where, who=current_actor(), origin=NOTEBOOK, rate=rate, check_first=True, join=True
    )
    return Replay(store, operation.operation_id).looked(timeout)

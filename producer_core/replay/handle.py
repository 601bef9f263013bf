"""A replay for notebooks: show its preview before any record is sent, then start, pause or cancel it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from producer_core import replay
from producer_core._internal.actor import NOTEBOOK, current_actor
from producer_core.dlq.approvals.requests import list_requests
from producer_core.errors import ProducerError, ReplayError
from producer_core.replay.dry_run import DryRun, dry_run
from producer_core.replay.schema_versions import schema_versions
from producer_core.replay.wording import done_of_total

if TYPE_CHECKING:
    from producer_core.dlq.approvals.requests import ApprovalRequest
    from producer_core.replay import Inconclusive, Newer, Operation
    from producer_core.store import Store

UNDECIDED = ("checking", "ready")
_POLL_INTERVAL = 0.1
_TO_DECIDE = "No record has been sent yet. Call go() to start or cancel() to discard the plan."
_NEXT = {
    "checking": _TO_DECIDE,
    "ready": _TO_DECIDE,
    "paused": "Paused. Call resume() to continue or cancel() to end the replay.",
}
"""The methods that an operator may call next, by state."""


class Replay:
    """One replay, shown with its current state. No record is sent before `go`; the plan fixes the dead letters.

    A live producer on the store runs it, so it continues when a cell is interrupted or the kernel stops.
    """

    def __init__(self, store: Store, operation_id: str) -> None:
        self.operation_id = operation_id
        self._store = store

    @property
    def operation(self) -> Operation:
        """The current operation as the store has it."""
        return replay.get(self._store, self.operation_id)

    @property
    def state(self) -> str:
        return self.operation.state

    @property
    def ended(self) -> bool:
        return self.operation.ended

    @property
    def message(self) -> str:
        """The latest status, as a sentence."""
        return self.operation.message or ""

    @property
    def request(self) -> ApprovalRequest | None:
        """The latest request for its approval; None if it never needed one. Another person decides it."""
        return next(iter(list_requests(self._store, operation_id=self.operation_id, limit=1)), None)

    def dry_run(self) -> DryRun:
        """Return what it still has to do, most serious point first."""
        from producer_core.dlq import DeadLetterFilter

        everything, operation = DeadLetterFilter(), self.operation
        schemas = schema_versions(self._store, everything, operation)
        return dry_run(self._store, everything, operation=operation, schemas=schemas)

    # decisions

    def go(
        self,
        *,
        newer: Newer | None = None,
        inconclusive: Inconclusive | None = None,
        rate: float | None = None,
        timeout: float = 60.0,
    ) -> Self:
        """Start the replay and wait for its end, at most `timeout` seconds; it continues after the timeout.

        A canary is sent first, and the replay stops if too many records fail again. `newer` ("skip" or "send") controls
        records whose key has a newer record, `inconclusive` ("keep" or "send") controls records that may be on their
        topic and are not found there. Running the cell twice sends no record twice.

        Raise ApprovalRequired if a second person must approve the replay first; call `go` again after the approval.
        """
        operation = self.checked(timeout).operation
        if operation.state == "checking":
            raise ReplayError(
                "The preflight check has not finished, so nothing was sent.",
                fix="Make sure that a producer is running on this store, then call go() again.",
            )
        if operation.state not in ("planned", "running") and not operation.ended:
            replay.go(
                self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK, newer=newer,
                inconclusive=inconclusive, rate=rate,
            )  # fmt: skip  # raises ReplayError if it is not ready
        return self.wait(timeout)

    def wait(self, timeout: float = 60.0) -> Self:
        """Wait until it has ended or needs a decision, at most `timeout` seconds."""
        self._until(lambda one: one.ended or one.state in ("paused", "ready"), timeout)
        return self

    def pause(self) -> Self:
        """Stop sending for now; records in flight are settled."""
        replay.pause(self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK)
        return self

    def resume(self, *, rate: float | None = None) -> Self:
        """Continue a paused replay, at another rate if given; use `wait` to wait for its end."""
        replay.resume(self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK, rate=rate)
        return self

    def cancel(self) -> Self:
        """End it permanently; records that were not sent remain dead letters."""
        replay.cancel(self._store, self.operation_id, who=current_actor(), origin=NOTEBOOK)
        return self

    def checked(self, timeout: float) -> Self:
        """Wait until the preflight check has finished, at most `timeout` seconds."""
        self._until(lambda one: one.state != "checking", timeout)
        return self

    def _until(self, over: Callable[[Operation], bool], timeout: float) -> Operation:
        deadline, waiting = time.monotonic() + timeout, threading.Event()
        operation = self.operation
        while not over(operation) and time.monotonic() < deadline:
            waiting.wait(_POLL_INTERVAL)
            operation = self.operation
        return operation

    # display

    def __repr__(self) -> str:
        try:
            operation = self.operation
            lines = self.dry_run().sentences if operation.state in UNDECIDED else (progress(operation),)
        except ProducerError as error:
            return str(error)
        return "\n".join(filter(None, (*lines, self._request_text(operation), _NEXT.get(operation.state))))

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        try:
            operation = self.operation
            page = (self.dry_run() if operation.state in UNDECIDED else operation)._repr_html_()
        except ProducerError as error:
            return html.page(str(error))
        if text := self._request_text(operation):
            page += html.page(text)
        return page + (html.page(_NEXT[operation.state]) if operation.state in _NEXT else "")

    def _request_text(self, operation: Operation) -> str:
        request = self.request if operation.state in ("ready", "paused") else None
        return request.text if request is not None else ""


class Replays(list[Replay]):
    """Unfinished replays; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        found = [one.operation for one in self]
        rows = [(one.operation_id, one.state, one.total, one.left, one.who, one.origin) for one in found]
        columns = ("replay", "state", "records", "left", "started by", "origin")
        return html.page(f"Unfinished replays: {len(rows):,}", columns=columns, rows=rows)


def progress(operation: Operation) -> str:
    """Return the progress as a sentence."""
    if operation.ended:
        return operation.message or "Done."
    return f"Replaying: {done_of_total(operation)}. {operation.message or ''}".strip()


def live(store: Store) -> Replays:
    """Return the unfinished replays, latest first."""
    return Replays(Replay(store, one.operation_id) for one in reversed(replay.live(store)))


def begin(store: Store, where: Any, *, rate: float | None, timeout: float) -> Replay:
    """Plan the replay and wait for its preflight check; it does not start by itself."""
    operation = replay.plan(
        store, where, who=current_actor(), origin=NOTEBOOK, rate=rate, check_first=True, join=True
    )
    return Replay(store, operation.operation_id).checked(timeout)

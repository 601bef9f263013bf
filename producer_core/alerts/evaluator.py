"""An evaluator: judges a store's alerts, in one process at a time."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from producer_core.alerts.alert_log import AlertLog
from producer_core.alerts.alert_state import AlertChange
from producer_core.alerts.evaluation import evaluate
from producer_core.alerts.lease import LEASE, Lease
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.rule_set_file import RuleSetFile
from producer_core.alerts.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from producer_core.store import Store

logger = logging.getLogger(__name__)

NAME = "alerts"
"""The lease of who evaluates."""

_JUMP = 2.0
"""Seconds by which the clock may differ from the time that passed before it counts as set."""


def this_process() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"


class AlertEvaluator:
    """Judges while it holds the lease. Not thread-safe: one thread calls it, every few seconds."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str | None = None,
        book: RuleSet | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        lease: float = LEASE,
    ) -> None:
        # Two processes must differ even where their ids do not, as in two containers.
        self.owner = owner or f"{this_process()}/{uuid.uuid4().hex[:6]}"
        self._clock = clock
        self._monotonic = monotonic
        self._log = AlertLog(store, clock=clock)
        self._lease = Lease(store, NAME, self.owner, seconds=lease, monotonic=monotonic)
        self._reader = SnapshotReader(store, monotonic=monotonic)
        self._books = RuleSetFile(store, book)
        self._last: tuple[float, float] | None = None
        self.leads = False

    @property
    def book(self) -> RuleSet:
        """The rules that hold now; a file that was changed is read again."""
        return self._books.now()

    def tick(self) -> Sequence[AlertChange]:
        """What changed; () where another process leads. StoreError when the store cannot be had."""
        now = self._clock()
        set_by = self._set_by(now)
        self.leads = self._lease.hold(now)
        if not self.leads:
            return ()
        if set_by:
            logger.warning("the clock was set", extra={"seconds": round(set_by, 1)})
            self._log.shift(set_by)
        book = self.book
        changes = evaluate(book.rules, self._reader.read(book, now), self._log.known())
        if changes and not self._log.take(changes, holder=self.owner, lease=NAME):
            self.leads = False
            return ()
        return tuple(changes)

    def stop(self) -> None:
        """Give the lease back, so that another process goes on at once."""
        self._lease.drop()

    def _set_by(self, now: float) -> float:
        """Seconds by which the clock was set since the last time; 0 when it just ran."""
        moment = self._monotonic()
        before, self._last = self._last, (now, moment)
        if before is None:
            return 0.0
        jumped = (now - before[0]) - (moment - before[1])
        return jumped if abs(jumped) > _JUMP else 0.0

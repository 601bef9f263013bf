"""The evaluator of a store's alerts, which runs in one process at a time."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core._internal.lease_watch import LEASE
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.alerts.alert_log import AlertLog
from producer_core.alerts.alert_state import Alert, AlertChange
from producer_core.alerts.evaluation import evaluate
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.rule_set_file import RuleSetFile
from producer_core.alerts.snapshot import StoreSnapshot
from producer_core.alerts.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from producer_core.store import Store

logger = queued_logger(__name__)

NAME = "alerts"
"""The name of the evaluator's lease."""

_CLOCK_TOLERANCE = 2.0
"""Seconds by which the system clock may deviate from the monotonic clock before it counts as changed."""

_RECALL_S = 15.0
"""Seconds for which evaluations use the last read while nothing is written to the store."""

_Read = tuple[StoreSnapshot, Sequence[Alert]]
"""What an evaluation reads from the store: the snapshot and the open alerts."""


@dataclass(frozen=True, slots=True)
class _LastRead:
    """The last read of the store, the number of writes before it, and its time."""

    read: _Read
    rules: RuleSet
    changes: int
    moment: float


def this_process() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"


class AlertEvaluator:
    """Evaluates alerts while it holds the lease. Not thread-safe: one thread calls it, every few seconds."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str | None = None,
        rule_set: RuleSet | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        lease: float = LEASE,
    ) -> None:
        from producer_core.store.lease import Lease  # loads DuckDB

        # Process ids can be equal, for example in two containers.
        self._store = store
        self.owner = owner or f"{this_process()}/{uuid.uuid4().hex[:6]}"
        self._clock = clock
        self._monotonic = monotonic
        self._log = AlertLog(store, clock=clock)
        self._lease = Lease(store, NAME, self.owner, seconds=lease, monotonic=monotonic)
        store.renew_with_appends(self._lease)
        self._reader = SnapshotReader(store, monotonic=monotonic)
        self._rule_set_file = RuleSetFile(store, rule_set)
        self._last: tuple[float, float] | None = None
        self._last_read: _LastRead | None = None
        self.leads = False

    @property
    def rule_set(self) -> RuleSet:
        """Return the current rule set. A changed file is read again."""
        return self._rule_set_file.now()

    def tick(self) -> Sequence[AlertChange]:
        """Evaluate once and return the changes; () where another process leads. Raise StoreError without the store."""
        now = self._clock()
        rules, jump = self.rule_set, self._clock_jump(now)
        self._lease.touch()
        if self._lease.is_renewal_due() and not self._hold(now):
            return ()
        read = None if jump else self._recall(rules, now) or self._read_as_owner(rules, now)
        if read is None:
            if not self._hold(now):
                return ()
            if jump:
                logger.warning(**with_fields("the system clock was changed", seconds=round(jump, 1)))
                self._log.shift(jump)
            read = self._read(rules, now)
        snapshot, open_alerts = read
        changes = evaluate(rules.rules, snapshot, open_alerts)
        if changes:
            self._last_read = None
        if changes and not self._log.apply(changes, holder=self.owner, lease=NAME):
            self.leads = False
            return ()
        return tuple(changes)

    def stop(self) -> None:
        """Release the lease, so that another process takes over at once."""
        self._lease.drop()

    def _read_as_owner(self, rules: RuleSet, now: float) -> _Read | None:
        """Read the store, or return None if another process has acquired the lease.

        The check of the lease and all queries share one borrow: each borrow attaches the file, which costs more than a
        query.
        """
        with self._store.borrow():
            return self._read(rules, now) if self._lease.is_owner() else None

    def _read(self, rules: RuleSet, now: float) -> _Read:
        changes, moment = self._store.changes(), self._monotonic()
        with self._store.borrow():
            read = self._reader.read(rules, now), self._log.open_alerts()
        self._last_read = _LastRead(read, rules, changes, moment)
        return read

    def _recall(self, rules: RuleSet, now: float) -> _Read | None:
        """Return what the last read found, as of now, if nothing was written since; None if the store must be read."""
        last = self._last_read
        if last is None or last.rules is not rules:
            return None
        (snapshot, open_alerts), elapsed = last.read, self._monotonic() - last.moment
        if snapshot.missing or elapsed >= _RECALL_S or self._store.changes() != last.changes:
            return None
        return snapshot.later(now, elapsed, alive=self.owner), open_alerts

    def _hold(self, now: float) -> bool:
        self.leads = self._lease.hold(now)
        return self.leads

    def _clock_jump(self, now: float) -> float:
        """Return the seconds by which the system clock was changed since the last call, or 0."""
        moment = self._monotonic()
        before, self._last = self._last, (now, moment)
        if before is None:
            return 0.0
        jump = (now - before[0]) - (moment - before[1])
        return jump if abs(jump) > _CLOCK_TOLERANCE else 0.0

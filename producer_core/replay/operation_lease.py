"""The lease of an operation: who has it, and for how long he may still act."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from producer_core.errors import StoreError
from producer_core.replay.claims import LeaseState

LEASE = 15.0
"""Seconds an operation stays a dead runner's before another takes it over; renewed every 5."""


class RenewsLease(Protocol):
    """Renews the lease in the store; False: it is another's now, or the operation has ended."""

    def renew(self) -> bool: ...


class LeaseMonitor:
    """Tells a dead owner from a living one without trusting the clock alone, which may be set at any time.

    A living owner renews his lease three times in its length. So he is dead when we saw the same lease for
    its whole length, or for half of it while the clock says that it has run out.
    """

    def __init__(self, lease: float, monotonic: Callable[[], float]) -> None:
        self._lease = lease
        self._monotonic = monotonic
        self._seen: dict[str, tuple[LeaseState, float]] = {}

    def free(self, held: LeaseState, now: float) -> bool:
        if held.owner is None or held.lease_until is None:
            return True
        before, since = self._seen.get(held.operation_id, (None, 0.0))
        if before != held:
            since = self._monotonic()
            self._seen[held.operation_id] = (held, since)
        unchanged = self._monotonic() - since
        return unchanged >= self._lease or (held.lease_until <= now and unchanged >= self._lease / 2)


class LeaseRenewer:
    """A thread that renews the lease three times in its length, whatever the work waits for.

    `holds` is judged by the monotonic clock from the moment before the last renewal, so that a process that
    was stopped knows, when it wakes, that it may not send.
    """

    def __init__(self, claims: RenewsLease, lease: float, started: float) -> None:
        self._claims = claims
        self._lease = lease
        self._until = started + lease
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="replay-lease", daemon=True)

    def __enter__(self) -> LeaseRenewer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def holds(self) -> bool:
        return time.monotonic() < self._until

    def renewed(self, started: float) -> None:
        self._until = max(self._until, started + self._lease)

    def _keep(self) -> None:
        while not self._done.wait(self._lease / 3):
            started = time.monotonic()
            try:
                if not self._claims.renew():
                    self._until = 0.0
                    return
            except StoreError:
                continue  # nobody can take the lease meanwhile; sending stops when it has run out
            self.renewed(started)

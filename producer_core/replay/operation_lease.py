"""The lease of an operation: detect dead owners and renew the own lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from producer_core.errors import StoreError
from producer_core.replay.claims import LeaseState

LEASE = 15.0
"""Seconds before another runner takes an operation from a dead one; the lease is renewed every 5 seconds."""


class RenewsLease(Protocol):
    """Renews the lease in the store; False if another runner has it or the operation has ended."""

    def renew(self) -> bool: ...


class LeaseMonitor:
    """Detect dead owners without relying on the wall clock alone, which may be changed at any time.

    A live owner renews its lease three times per lease period. The owner is dead if the lease stayed unchanged for a
    whole period, or for half a period after it expired by the wall clock.
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
    """A thread that renews the lease three times per lease period, whatever the replay waits for.

    `holds` counts from the monotonic time before the last renewal, so a process that was suspended knows that it must
    not send when it continues.
    """

    def __init__(self, claims: RenewsLease, lease: float, started: float) -> None:
        self._claims = claims
        self._lease = lease
        self._until = started + lease
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_done, name="replay-lease", daemon=True)

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

    def _renew_until_done(self) -> None:
        while not self._done.wait(self._lease / 3):
            started = time.monotonic()
            try:
                if not self._claims.renew():
                    self._until = 0.0
                    return
            except StoreError:
                continue  # no other process can take the lease now either; sending stops when it expires
            self.renewed(started)

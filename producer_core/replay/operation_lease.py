"""Renew the lease of an operation while its records are sent."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from producer_core.errors import StoreError


class RenewsLease(Protocol):
    """Renews the lease in the store; False: it is another's now, or the operation has ended."""

    def renew(self) -> bool: ...


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

"""Renew the lease of an operation while its records are sent."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from producer_core.errors import StoreError


class RenewsLease(Protocol):
    """Renews the lease in the store; False if another runner has it or the operation has ended."""

    def renew(self) -> bool: ...


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

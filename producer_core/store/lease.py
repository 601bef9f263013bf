"""Leases in the store: one process at a time does the work, and another takes over when it dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from producer_core._internal.lease_watch import LEASE, LeaseWatch

if TYPE_CHECKING:
    from producer_core.store.store import Store


class Lease:
    """One process's view of one lease of the table `leases`. The owner renews it with `hold`."""

    def __init__(
        self,
        store: Store,
        name: str,
        owner: str,
        *,
        seconds: float = LEASE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = owner
        self._store = store
        self._name = name
        self._seconds = seconds
        self._monotonic = monotonic
        self._watch = LeaseWatch(seconds)
        self._renewed: float | None = None

    def hold(self, now: float) -> bool:
        """Acquire or renew the lease. Costs one read, and one write per half of its length."""
        moment = self._monotonic()
        found = self._store.rows("lease_holder", name=self._name)
        if not found:
            return self._note(self._store.take_lease(self._name, self.owner, self._seconds, now), moment)
        owner, until = found[0]["owner"], found[0]["lease_until"]
        if owner == self.owner:
            self._watch.forget(self._name)
            if not self.is_renewal_due():
                return True
            return self._note(self._seize(owner, until, now), moment)
        free = self._watch.is_free(self._name, owner, until, now=now, moment=moment)
        return free and self._note(self._seize(owner, until, now), moment)

    def is_renewal_due(self) -> bool:
        """Return whether the lease must be acquired or renewed. Costs nothing."""
        return self._renewed is None or self._monotonic() - self._renewed >= self._seconds / 2

    def is_owner(self) -> bool:
        """Return whether the store names this owner. Costs one read."""
        found = self._store.rows("lease_holder", name=self._name)
        return bool(found) and found[0]["owner"] == self.owner

    def drop(self) -> None:
        """Release the lease, so that another process need not wait for its expiry."""
        if self._renewed is not None:
            self._renewed = None
            self._store.drop_lease(self._name, self.owner)

    def _seize(self, held_by: str, held_until: float, now: float) -> bool:
        changed = self._store.execute(
            "lease_seize",
            name=self._name,
            owner=self.owner,
            until=now + self._seconds,
            held_by=held_by,
            held_until=held_until,
        )
        return changed > 0

    def _note(self, acquired: bool, moment: float) -> bool:
        self._renewed = moment if acquired else None
        return acquired

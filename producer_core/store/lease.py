"""Leases in the store: one process at a time does the work, and another takes over when it dies."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from producer_core._internal.lease_watch import LEASE, LeaseWatch
from producer_core.store.queries import run

if TYPE_CHECKING:
    import duckdb

    from producer_core.store.store import Store


_EARLY_RENEWAL = 0.25
"""Share of a lease's length after which a write of the same process renews it too."""


class Lease:
    """One process's view of one lease of the table `leases`. The owner renews it with `hold`, and `renew_within` renews it
    in a transaction of another thread. `hold` and `drop` belong to one thread."""

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
        self._touched = float("-inf")

    def hold(self, now: float) -> bool:
        """Acquire or renew the lease. Costs one read, or one write per half of its length."""
        if self._renewed is None or not self.is_renewal_due():
            return self._hold(now)
        with self._store.borrow(write=True, routine=True):  # one borrow for the check and the renewal
            return self._hold(now)

    def _hold(self, now: float) -> bool:
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
        self._renewed = None
        free = self._watch.is_free(self._name, owner, until, now=now, moment=moment)
        return free and self._note(self._seize(owner, until, now), moment)

    def is_renewal_due(self) -> bool:
        """Return whether the lease must be acquired or renewed. Costs nothing."""
        return self._renewed is None or self._monotonic() - self._renewed >= self._seconds / 2

    def touch(self) -> None:
        """Tell that the owner still works."""
        self._touched = self._monotonic()

    def renew_within(self, connection: duckdb.DuckDBPyConnection, now: float) -> Callable[[], None] | None:
        """Renew the lease in the caller's transaction if it is held, in use, and a quarter of its length has passed.

        Return a function to call after the commit, or None without a renewal. A lease is in use for half of its length
        after `touch`, so that an owner whose thread hangs loses it.
        """
        renewed, moment = self._renewed, self._monotonic()
        if renewed is None or moment - renewed < self._seconds * _EARLY_RENEWAL:
            return None
        if moment - self._touched >= self._seconds / 2:
            return None
        given = {"name": self._name, "owner": self.owner, "until": now + self._seconds}
        changed = run(connection, "lease_renew", **given).fetchone()
        return functools.partial(self._renewed_at, moment) if changed and changed[0] else None

    def _renewed_at(self, moment: float) -> None:
        if self._renewed is not None:  # else it was dropped
            self._renewed = moment

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

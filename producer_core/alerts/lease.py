"""A lease in the store: one process per name does the work, and another takes over when it dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer_core.store import Store

LEASE = 15.0
"""Seconds until the lease of a dead owner expires. A running owner renews it before half of that time."""


class Lease:
    """One process's view of one lease.

    The system clock alone does not end a lease, because it can be changed at any time. The owner counts as dead when the
    lease was seen unchanged for its whole length, or for half of it if the lease has expired by the system clock.
    """

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
        self._renewed: float | None = None
        self._watched: tuple[tuple[str, float], float] | None = None

    def hold(self, now: float) -> bool:
        """Acquire or renew the lease. Costs one read, and one write in half its length."""
        moment = self._monotonic()
        found = self._store.rows("lease_holder", name=self._name)
        held = (found[0]["owner"], found[0]["lease_until"]) if found else None
        if held is not None and held[0] == self.owner:
            self._watched = None
            if self._renewed is not None and moment - self._renewed < self._seconds / 2:
                return True
            return self._note(self._seize(held, now), moment)
        if held is None:
            return self._note(self._store.take_lease(self._name, self.owner, self._seconds, now), moment)
        return self._is_free(held, now, moment) and self._note(self._seize(held, now), moment)

    def drop(self) -> None:
        """Release the lease, so that another process need not wait for its expiry."""
        if self._renewed is not None:
            self._renewed = None
            self._store.drop_lease(self._name, self.owner)

    def _is_free(self, held: tuple[str, float], now: float, moment: float) -> bool:
        if self._watched is None or self._watched[0] != held:
            self._watched = (held, moment)
        unchanged = moment - self._watched[1]
        return unchanged >= self._seconds or (held[1] <= now and unchanged >= self._seconds / 2)

    def _seize(self, held: tuple[str, float], now: float) -> bool:
        changed = self._store.execute(
            "lease_seize",
            name=self._name,
            owner=self.owner,
            until=now + self._seconds,
            held_by=held[0],
            held_until=held[1],
        )
        return changed > 0

    def _note(self, acquired: bool, moment: float) -> bool:
        self._renewed = moment if acquired else None
        return acquired

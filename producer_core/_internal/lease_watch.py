"""Decide whether the owner of a lease is dead."""

from __future__ import annotations

LEASE = 15.0
"""Seconds until the lease of a dead owner expires. A running owner renews it before half of that time."""


class LeaseWatch:
    """Detect dead owners of leases, each lease known by a name.

    The system clock alone does not end a lease, because it can be changed at any time. The owner counts as dead when the
    lease was seen unchanged for its whole length, or for half of it if the lease has expired by the system clock.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, tuple[tuple[str, float], float]] = {}

    def is_free(
        self, name: str, owner: str | None, until: float | None, *, now: float, moment: float
    ) -> bool:
        """Return whether a lease, as it is in the store, has no owner or a dead one.

        `now` is the system clock's time, and `moment` that of the monotonic clock.
        """
        if owner is None or until is None:
            return True
        held = (owner, until)
        seen, since = self._seen.get(name, (None, moment))
        if seen != held:
            since = moment
            self._seen[name] = (held, since)
        unchanged = moment - since
        return unchanged >= self._seconds or (until <= now and unchanged >= self._seconds / 2)

    def forget(self, name: str) -> None:
        """Start the observation of a lease again."""
        self._seen.pop(name, None)

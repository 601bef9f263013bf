"""The rate limit of a replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from producer_core.delivery.dead_letter import ReplayRecord


class SharedLimit(Protocol):
    """A limit that the replay shares with the messages of its process."""

    def rate(self) -> float | None:
        """Return the records per second that the replay may send now, or None without a limit."""

    def most_bytes(self) -> int | None:
        """Return the bytes of keys and values that the replay may claim at once, or None without a limit."""

    def charge(self, records: Sequence[ReplayRecord]) -> None:
        """Count records that the replay sends."""


MakeSharedLimit = Callable[[Sequence[str]], SharedLimit]
"""Returns the limit for a replay to these topics."""


class ReplayPace:
    """Rate limit: unused records accumulate for up to `burst` seconds. None means no limit.

    With `shared`, the lower one of both limits applies.
    """

    def __init__(
        self, rate: float | None, now: float, *, burst: float = 1.0, shared: SharedLimit | None = None
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._shared = shared
        self._allowed = 1.0
        self._at = now

    def room(self, now: float, most: int) -> int:
        if (rate := self._lower_rate()) is None:
            return most
        if not rate:
            self._at = now
            return 0
        self._allowed = min(max(1.0, rate * self._burst), self._allowed + (now - self._at) * rate)
        self._at = now
        return min(most, int(self._allowed))

    def _lower_rate(self) -> float | None:
        shared = None if self._shared is None else self._shared.rate()
        return min((rate for rate in (self._rate, shared) if rate is not None), default=None)

    def room_for_bytes(self, most: int) -> int:
        """Return the bytes that may be claimed at once, at most `most`."""
        shared = None if self._shared is None else self._shared.most_bytes()
        return most if shared is None else min(most, shared)

    def follow(self, rate: float | None) -> None:
        """Switch to another rate; the accumulated records are kept within its limit."""
        self._rate = rate

    @property
    def rate(self) -> float | None:
        return self._rate

    def spend(self, count: int) -> None:
        self._allowed -= count

    def claimed(self, records: Sequence[ReplayRecord]) -> None:
        """Count records that were claimed and will be sent."""
        self.spend(len(records))
        if self._shared is not None:
            self._shared.charge(records)

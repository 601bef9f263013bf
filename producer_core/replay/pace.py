"""The rate limit of a replay."""

from __future__ import annotations


class ReplayPace:
    """Rate limit: unused records accumulate for up to `burst` seconds. None means no limit."""

    def __init__(self, rate: float | None, now: float, *, burst: float = 1.0) -> None:
        self._rate = rate
        self._burst = burst
        self._allowed = 1.0
        self._at = now

    def room(self, now: float, most: int) -> int:
        if self._rate is None:
            return most
        self._allowed = min(max(1.0, self._rate * self._burst), self._allowed + (now - self._at) * self._rate)
        self._at = now
        return min(most, int(self._allowed))

    def follow(self, rate: float | None) -> None:
        """Switch to another rate; the accumulated records are kept within its limit."""
        self._rate = rate

    @property
    def rate(self) -> float | None:
        return self._rate

    def spend(self, count: int) -> None:
        self._allowed -= count

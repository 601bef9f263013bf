"""A token bucket whose tokens can be reserved for a later time."""

from __future__ import annotations

from collections.abc import Sequence


class TokenBucket:
    """Reserves tokens. `rate` is in tokens per second; the bucket holds `burst` seconds of tokens and starts full.

    The bucket stores the time at which it will be full again, as the generic cell rate algorithm does (ITU-T I.371). In
    every interval of `t` seconds it grants at most `rate * (t + burst)` tokens and one request more. Not thread-safe.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._seconds_per_token = 1 / rate
        self._burst = burst
        self._full_at = 0.0
        self._last_full = 0.0  # the last time at which tokens were taken from a full bucket

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return 1 / self._seconds_per_token

    def ready_at(self, tokens: float, now: float) -> float:
        """Return the earliest time at which the bucket can grant these tokens. A larger request needs a full bucket."""
        needed = min(tokens * self._seconds_per_token, self._burst)
        return max(now, self._full_at + needed - self._burst)

    def take_now(self, tokens: float, now: float) -> bool:
        """Take tokens if the bucket can grant them at once, and return whether it did."""
        ready = self.ready_at(tokens, now) <= now
        if ready:
            self.take(tokens, now)
        return ready

    def take(self, tokens: float, at: float) -> None:
        """Take tokens at a time that `ready_at` returned. At an earlier time the bucket goes into debt."""
        if self._full_at <= at:
            self._full_at = self._last_full = at
        self._full_at += tokens * self._seconds_per_token

    def give_back(self, tokens: float, taken_at: float) -> None:
        """Return tokens that were taken at this time and not used, unless the bucket has been full since."""
        if self._last_full <= taken_at:
            self._full_at -= tokens * self._seconds_per_token


def ready_together(buckets: Sequence[tuple[TokenBucket, float]], now: float) -> float:
    """Return the earliest time at which each bucket can grant its tokens."""
    return max((bucket.ready_at(tokens, now) for bucket, tokens in buckets), default=now)

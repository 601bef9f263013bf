"""Count the outcomes of the last seconds."""

from __future__ import annotations

import math
from collections import deque


class OutcomeWindow:
    """Counts acknowledgements and failures in one bucket a second, over a sliding window of `size` seconds.

    A bucket leaves the window as a whole, so that up to a second less than `size` is counted. Not safe in threads.
    """

    def __init__(self, size: float) -> None:
        self._buckets: deque[list[int]] = deque()  # second, succeeded, failed
        self._size = max(1, math.ceil(size))
        self.succeeded = 0
        self.failed = 0

    def add(self, now: float, *, succeeded: int = 0, failed: int = 0) -> None:
        """Count outcomes at a monotonic time in seconds."""
        second = int(now)
        self.expire(now)
        self.succeeded += succeeded
        self.failed += failed
        if not self._buckets or self._buckets[-1][0] < second:
            self._buckets.append([second, succeeded, failed])
        else:
            self._buckets[-1][1] += succeeded
            self._buckets[-1][2] += failed

    def expire(self, now: float) -> None:
        """Drop what is older than the window."""
        last = int(now) - self._size
        # No call between the check and `popleft`, so that no signal handler sends in between.
        while self._buckets and self._buckets[0][0] <= last:
            _, succeeded, failed = self._buckets.popleft()
            self.succeeded -= succeeded
            self.failed -= failed

    def clear(self) -> None:
        self._buckets.clear()
        self.succeeded = self.failed = 0

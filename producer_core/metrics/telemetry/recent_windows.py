"""Track how many of the latest windows are on the telemetry topic."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

SPAN = 300.0
"""Seconds of the period that a share covers."""
_GRACE = 10.0
"""Seconds that a window may take to be sent; until then it does not count as failed."""
_MIN_WINDOWS = 30
"""Windows below which a share is never reported as failing."""


@dataclass(frozen=True, slots=True)
class WindowShare:
    """The number of windows of the last five minutes, and of those that are not on the topic."""

    failed: int
    windows: int

    @property
    def most(self) -> bool:
        """Whether most of the windows failed."""
        return self.windows >= _MIN_WINDOWS and 2 * self.failed > self.windows

    @property
    def value(self) -> float:
        return self.failed / self.windows if self.windows else 0.0


class RecentWindows:
    """Records when each window was created and whether it was sent. Times are seconds of the caller's clock. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the field below
        self._windows: OrderedDict[int, tuple[float, bool]] = OrderedDict()

    def made(self, sequence: int, now: float) -> None:
        with self._lock:
            self._windows[sequence] = (now, False)
            while self._windows and now - next(iter(self._windows.values()))[0] > SPAN:
                self._windows.popitem(last=False)

    def sent(self, first: int, last: int) -> None:
        """Mark the windows from `first` to `last` as sent."""
        with self._lock:
            for sequence in range(max(first, next(iter(self._windows), last + 1)), last + 1):
                if sequence in self._windows:
                    self._windows[sequence] = (self._windows[sequence][0], True)

    def share(self, now: float) -> WindowShare:
        with self._lock:
            recent = [sent for made, sent in self._windows.values() if _GRACE < now - made <= SPAN or sent]
        return WindowShare(sum(not sent for sent in recent), len(recent))

"""The latest windows: how many of them are on the topic."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

SPAN = 300.0
"""Seconds that are looked at."""
_GRACE = 10.0
"""Seconds that a window may take; before that it is neither sent nor failed."""
_FEWEST = 30
"""Windows without which nothing is said."""


@dataclass(frozen=True, slots=True)
class WindowShare:
    """Of the windows of the last five minutes so many are not on the topic."""

    failed: int
    windows: int

    @property
    def most(self) -> bool:
        return self.windows >= _FEWEST and 2 * self.failed > self.windows

    @property
    def value(self) -> float:
        return self.failed / self.windows if self.windows else 0.0


class RecentWindows:
    """Told of each window when it is made and when it is sent; times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the field below
        self._windows: OrderedDict[int, tuple[float, bool]] = OrderedDict()

    def made(self, sequence: int, now: float) -> None:
        with self._lock:
            self._windows[sequence] = (now, False)
            while self._windows and now - next(iter(self._windows.values()))[0] > SPAN:
                self._windows.popitem(last=False)

    def sent(self, first: int, last: int) -> None:
        """The windows from `first` to `last`, which may have been added up."""
        with self._lock:
            for sequence in range(max(first, next(iter(self._windows), last + 1)), last + 1):
                if sequence in self._windows:
                    self._windows[sequence] = (self._windows[sequence][0], True)

    def share(self, now: float) -> WindowShare:
        with self._lock:
            looked_at = [sent for made, sent in self._windows.values() if _GRACE < now - made <= SPAN or sent]
        return WindowShare(sum(not sent for sent in looked_at), len(looked_at))

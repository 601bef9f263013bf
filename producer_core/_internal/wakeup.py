"""A bell: threads wait for it, whoever rings it wakes them all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Wakeup:
    """Remembers no ring: who waits waits for a moment only, and asks again.

    An interrupt of a thread that waits, or rings, leaves nothing locked, as it may in an Event: there Python code takes the
    lock, and an interrupt that comes between its lines leaves it taken, for good.
    """

    def __init__(self) -> None:
        # Each is locked, and let go once. A list's own steps need no lock.
        self._waiting: list[threading.Lock] = []

    def notify_all(self) -> None:
        with contextlib.suppress(IndexError):
            while self._waiting:
                self._waiting.pop().release()

    def wait(self, seconds: float, *, unless: Callable[[], bool] | None = None) -> None:
        """Until it rings or the seconds are over. `unless` is asked when a ring would be heard already."""
        own = threading.Lock()
        own.acquire()
        self._waiting.append(own)
        try:
            if unless is None or not unless():
                own.acquire(timeout=seconds)
        finally:
            with contextlib.suppress(ValueError):  # it was rung
                self._waiting.remove(own)

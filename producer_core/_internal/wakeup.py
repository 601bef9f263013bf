"""Wake all waiting threads at once, safely under interrupts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Wakeup:
    """Wakes all threads that wait. It keeps no state: a thread waits for a moment, then checks its condition again.

    An interrupt of a waiting or notifying thread leaves no lock taken. A `threading.Event` can: its lock is taken in Python
    code, and an interrupt between two of those lines leaves it taken forever.
    """

    def __init__(self) -> None:
        # Each lock is acquired, and released once. Single list operations need no lock of their own.
        self._waiting: list[threading.Lock] = []

    def notify_all(self) -> None:
        with contextlib.suppress(IndexError):
            while self._waiting:
                self._waiting.pop().release()

    def wait(self, seconds: float, *, unless: Callable[[], bool] | None = None) -> None:
        """Wait for a notification, or `seconds`. `unless` runs when a notification would already be noticed."""
        own = threading.Lock()
        own.acquire()
        self._waiting.append(own)
        try:
            if unless is None or not unless():
                own.acquire(timeout=seconds)
        finally:
            with contextlib.suppress(ValueError):  # removed by notify_all
                self._waiting.remove(own)

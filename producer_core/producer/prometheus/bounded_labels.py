"""Bound the number of values of a label."""

from __future__ import annotations

import threading
from collections.abc import Iterable

OTHER = "other"


class BoundedLabels:
    """Gives the first `limit` values a label of their own for the life of the process, and all others `rest`.

    A value never changes its label, because a counter that moves to another label looks like a reset. Safe in threads.
    """

    def __init__(self, limit: int, *, rest: str = OTHER) -> None:
        self._limit, self._rest = limit, rest
        self._lock = threading.Lock()  # guards the field below
        self._own: set[str] = set()

    def add(self, values: Iterable[str]) -> None:
        """Give labels to new values, in this order."""
        with self._lock:
            for value in values:
                if len(self._own) >= self._limit:
                    return
                self._own.add(value)

    def of(self, value: str) -> str:
        """Return the label of a value; a new value receives its own while there is room."""
        self.add((value,))
        return value if value in self._own else self._rest

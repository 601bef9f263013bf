"""Number the batches of a producer without gaps or repetitions, even if its session outlives the process."""

from __future__ import annotations

import time
from collections.abc import Callable


class BatchSequence:
    """Assigns batch numbers. Used by one thread.

    A `fresh` session starts at 0. A session derived from an input continues with `known`, the next number according to the
    store. If the store is not available, the numbers start far above all others, which a reader of the ledger sees as a gap.
    """

    def __init__(self, *, fresh: bool, known: Callable[[], int | None] = lambda: None) -> None:
        self._known = known
        self._next = 0 if fresh else None

    def take(self) -> int:
        """Return the next number."""
        number = self._first() if self._next is None else self._next
        self._next = number + 1
        return number

    def _first(self) -> int:
        known = self._known()
        return int(time.time() * 1000) if known is None else known

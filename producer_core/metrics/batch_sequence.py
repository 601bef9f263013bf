"""Number the batches of a producer: dense, and no number twice, also where its session outlives the process."""

from __future__ import annotations

import time
from collections.abc import Callable


class BatchSequence:
    """Numbers of a `fresh` session begin at 0; those of a session that is derived from an input go on.

    They go on from what the store knows of this producer. Where the store cannot be asked numbers begin far above all
    others, which a reader of the ledger takes for a hole. Used by one thread.
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

"""A deadline: one bound of time that several steps share."""

from __future__ import annotations

import math
import time


class Deadline:
    """Passes `seconds` after it was made."""

    def __init__(self, seconds: float) -> None:
        self._passes = time.monotonic() + seconds

    def left(self, *, at_least: float = 0.0, at_most: float = math.inf) -> float:
        """Seconds for the next step: what is left, within these limits."""
        return max(at_least, min(at_most, self._passes - time.monotonic()))

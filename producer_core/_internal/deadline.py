"""Share one time limit between several steps."""

from __future__ import annotations

import math
import time


class Deadline:
    """Expires `seconds` after its creation."""

    def __init__(self, seconds: float) -> None:
        self._expires_at = time.monotonic() + seconds

    def left(self, *, at_least: float = 0.0, at_most: float = math.inf) -> float:
        """Return the seconds left for the next step, within these limits."""
        return max(at_least, min(at_most, self._expires_at - time.monotonic()))

"""The number of records that a replay claims at once."""

from __future__ import annotations


class BatchSizer:
    """Maximum number of records in flight: it grows while store updates are fast, because an update blocks other writers."""

    FIRST, LEAST = 2000, 8000
    """The first size, and the least that slow updates leave: an update of 8,000 records takes hardly longer than of 2,000."""
    SHORT, LONG = 0.5, 1.0
    """Seconds."""
    SHORT_WAVE, LONG_WAVE = 2.0, 4.0
    """Seconds for updates of waves, whose time depends less on their size: on a busy machine, small ones would be as slow."""

    FASTEST = 16
    """How much larger the next wave may be, if an update in proportion to its size would still be short."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._fastest = 2
        self._short, self._long = self.SHORT, self.LONG
        self.now = min(most, self.FIRST)

    def use_waves(self) -> None:
        """Begin with the least size of slow updates: the guard, and not the claim, limits the records in flight."""
        self._short, self._long = self.SHORT_WAVE, self.LONG_WAVE
        self._fastest = self.FASTEST
        self.now = min(self._most, self.LEAST)

    def stop_growing(self) -> None:
        """Keep the current size, however fast store updates are."""
        self._most = self.now

    def took(self, seconds: float, in_flight: int) -> None:
        """Follow an update that took this time and ended with this number of records in flight."""
        if seconds > self._long and self.now > self.LEAST:
            self.now = max(self.LEAST, self.now // 2)
        elif (seconds < self._short or self.now < self.LEAST) and in_flight >= self.now:
            self.now = min(self._most, self.now * self._growth(seconds))

    def _growth(self, seconds: float) -> int:
        return max(2, min(self._fastest, int(self._short / max(seconds, 0.001))))

"""Define a cause of dead letters."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """Counts the messages that failed on a topic for one reason.

    `fingerprint` is that of their group, `waiting` the number still pending (None: all), and `last` the time of the
    latest failure.
    """

    topic: str
    meaning: str
    dead: int
    fingerprint: str = ""
    waiting: int | None = None
    last: float = 0.0

    @property
    def left(self) -> int:
        return self.dead if self.waiting is None else self.waiting

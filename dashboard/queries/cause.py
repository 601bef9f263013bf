"""A cause of dead letters, as the overview shows it."""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """Messages that failed on a topic for one reason; `fingerprint` is their group's, `waiting` says how many of them
    still wait (None: all), `last` when the last of them failed."""

    topic: str
    meaning: str
    dead: int
    fingerprint: str = ""
    waiting: int | None = None
    last: float = 0.0

    @property
    def left(self) -> int:
        return self.dead if self.waiting is None else self.waiting

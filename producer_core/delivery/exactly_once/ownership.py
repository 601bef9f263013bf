"""Decide whether a shard that lost its transactional id takes it back, or leaves it to another live producer.

A broker fences a producer for every InitProducerId request with its transactional id: one of a second live process,
and also a late one of a process that was killed, or of an earlier client of our own. Nothing in the answer tells
them apart, and librdkafka cannot describe a transactional id. But a second live process takes the id again whenever
we do, and a late request comes once. So a shard takes its id back a few times, each time after a longer wait.

Of two live producers with one id exactly one remains. The first of them that is fenced is the one that had the id
before, so it is also the first without an attempt left, and the newer one keeps the id. Each shard of a process has
more attempts than the shard before it, so that one id decides and two processes never give way to each other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

_ATTEMPTS = 3
"""How often shard 0 takes its id back before it leaves it to the other producer."""
_MORE = 2
"""Attempts that each further shard has more; with the waits they put seconds between the decisions of two shards."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 4.0
_REMEMBERED = 24 * 3600.0
"""Seconds for which a loss counts: a second producer that sends rarely is noticed all the same."""
_EXPLAINED_REMEMBERED = 600.0
"""The same where a request of our own can be the cause; a bad network may bring many of these in a day."""


class Ownership:
    """Count how often one shard lost its transactional id; used by the shard's thread."""

    def __init__(self, shard: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.attempts = _ATTEMPTS + _MORE * shard
        self._clock = clock
        self._expiries: list[float] = []  # one a loss: until when it counts

    @property
    def losses(self) -> int:
        """Losses that count now."""
        return len(self._expiries)

    def lost(self, *, explained: bool) -> float | None:
        """Count a loss; return the seconds to wait before the id is taken back, or None when it must not be.

        `explained`: a late copy of this shard's own request can be the cause.
        """
        now = self._clock()
        self._expiries = [until for until in self._expiries if until > now]
        if len(self._expiries) >= self.attempts:
            return None
        wait: float = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** len(self._expiries))
        self._expiries.append(now + (_EXPLAINED_REMEMBERED if explained else _REMEMBERED))
        return wait * random.uniform(0.75, 1.25)  # noqa: S311  # spread, not secret

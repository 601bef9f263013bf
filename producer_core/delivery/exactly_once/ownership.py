"""Decide whether a shard that lost its transactional id takes it back or leaves it to another live producer.

The broker fences a producer at every InitProducerId request with its transactional id. The request can come from a
second live process, or arrive late from a killed process or from an earlier client of the same process. The error
is the same in all cases, and librdkafka cannot describe a transactional id. However, a second live process takes the id
back each time, while a late request arrives once. So a shard takes its id back a few times, after longer and longer
waits.

Exactly one of two live producers with the same id remains. The first one to be fenced is the previous owner of the id,
so it is the first to use up its attempts, and the newer producer keeps the id. Each shard of a process has more
attempts than the shard before it. One id therefore decides, and two processes never yield to each other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

_ATTEMPTS = 3
"""The number of times that shard 0 takes its id back before it leaves it to the other producer."""
_ATTEMPTS_PER_SHARD = 2
"""Extra attempts of each further shard. With the waits, the decisions of two shards are seconds apart."""
_FIRST_WAIT_S, _MAX_WAIT_S = 0.5, 4.0
_LOSS_COUNTS_S = 24 * 3600.0
"""Seconds for which a loss counts. Long enough to detect a second producer that sends rarely."""
_EXPLAINED_LOSS_COUNTS_S = 600.0
"""The same when a request of this process can be the cause. A bad network can cause many of them in a day."""


class Ownership:
    """Count the losses of one shard's transactional id. Used by the shard's thread."""

    def __init__(self, shard: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.attempts = _ATTEMPTS + _ATTEMPTS_PER_SHARD * shard
        self._clock = clock
        self._expiries: list[float] = []  # one per loss: the time until which it counts

    @property
    def losses(self) -> int:
        """Return the number of losses that still count."""
        return len(self._expiries)

    def record_loss(self, *, explained: bool) -> float | None:
        """Count a loss. Return the seconds to wait before taking the id back, or None when the shard must not.

        `explained` is true when a late copy of this shard's own request can be the cause.
        """
        now = self._clock()
        self._expiries = [expiry for expiry in self._expiries if expiry > now]
        if len(self._expiries) >= self.attempts:
            return None
        wait: float = min(_MAX_WAIT_S, _FIRST_WAIT_S * 2.0 ** len(self._expiries))
        self._expiries.append(now + (_EXPLAINED_LOSS_COUNTS_S if explained else _LOSS_COUNTS_S))
        return wait * random.uniform(0.75, 1.25)  # noqa: S311  # spread, not secret

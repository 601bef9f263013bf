"""The owner of a transactional replay, as the strategy sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from producer_core.replay.strategy import Interrupt


@dataclass(frozen=True)
class Supervisor:
    """The callbacks of a replay's owner: `interrupt` returns whether to stop, `say` reports the status, `fenced` runs
    after each fence."""

    interrupt: Interrupt
    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    fenced: Callable[[], None] = lambda: None

"""Threads that share a run's messages, so many in all."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call `work` with 0, 1, … on a thread each, until all are done; each takes every `count`th message from its own on."""
    workers = [threading.Thread(target=work, args=(first,)) for first in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

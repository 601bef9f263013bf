"""Share the messages of a run among threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call `work(0)`, `work(1)`, … on a thread each and wait for all; thread n handles messages n, n + count, …"""
    workers = [threading.Thread(target=work, args=(first,)) for first in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

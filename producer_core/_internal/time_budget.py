"""The patience of a thread: until when it waits for the store's file, whatever each step allows.

A process that ends, and a producer that closes, have one bound for all steps together. A step whose thread has no
patience left tries once and does not wait.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

_thread = threading.local()
_ending = threading.Event()


class TimeBudget:
    """Has no end until one is set, which any thread may do."""

    def __init__(self) -> None:
        self._ends = math.inf

    def end_in(self, seconds: float) -> None:
        self._ends = min(self._ends, time.monotonic() + seconds)

    def over(self) -> bool:
        return time.monotonic() >= self._ends


def share(patience: TimeBudget) -> None:
    """From now on this thread waits no longer than that."""
    _thread.patience = patience


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """A block whose waits for the store end in so many seconds, all together."""
    before = getattr(_thread, "patience", None)
    _thread.patience = TimeBudget()
    _thread.patience.end_in(seconds)
    try:
        yield
    finally:
        _thread.patience = before


def over() -> bool:
    """Whether this thread waits no more."""
    patience = getattr(_thread, "patience", None)
    return _ending.is_set() or (patience is not None and patience.over())


def end_for_all() -> None:
    """The process ends: no thread waits any more."""
    _ending.set()

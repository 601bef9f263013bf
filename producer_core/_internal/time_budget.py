"""Bound the time that a thread waits for the store's file, over several steps.

A process that exits and a producer that closes have one time limit for all steps together. A step of a thread whose
budget is used up tries once and does not wait.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator

_thread = threading.local()
_exiting = threading.Event()


class TimeBudget:
    """A time limit. It is unlimited until any thread sets it.

    A waiting thread calls `while_waiting` at least every 50 ms.
    """

    def __init__(self, while_waiting: Callable[[], None] = lambda: None) -> None:
        self._ends = math.inf
        self.while_waiting = while_waiting

    def end_in(self, seconds: float) -> None:
        self._ends = min(self._ends, time.monotonic() + seconds)

    def over(self) -> bool:
        return time.monotonic() >= self._ends


def share(budget: TimeBudget) -> None:
    """Apply a budget to this thread's waits from now on."""
    _thread.budget = budget


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Bound all waits for the store inside the block to `seconds` in total."""
    before = getattr(_thread, "budget", None)
    _thread.budget = TimeBudget()
    _thread.budget.end_in(seconds)
    try:
        yield
    finally:
        _thread.budget = before


def over() -> bool:
    """Whether this thread must stop waiting. A thread that waits for the store calls this again and again."""
    budget: TimeBudget | None = getattr(_thread, "budget", None)
    if budget is None:
        return _exiting.is_set()
    budget.while_waiting()
    return _exiting.is_set() or budget.over()


def end_for_all() -> None:
    """End the waits of all threads, because the process exits."""
    _exiting.set()

"""The end of a producer: it happens once, whoever asks for it; a forked child touches nothing of its parent's."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable

from producer_core._internal import at_exit as _internal_at_exit  # noqa: F401  # exits: before our own step at the end is registered
from producer_core._internal import forks
from producer_core.delivery.reports import CloseReport
from producer_core.errors import ForkedProducer, ProducerClosed

THREAD_PREFIX = "producer-core-"
"""How the names of our threads begin."""

_open: weakref.WeakSet[Shutdown] = weakref.WeakSet()


class Shutdown:
    """Closes with `finish(timeout)`; `so_far` is the report of a close that goes on in another thread."""

    def __init__(self, finish: Callable[[float], CloseReport], so_far: Callable[[], CloseReport]) -> None:
        self._finish = finish
        self._so_far = so_far
        self._once = threading.Lock()
        self._report: CloseReport | None = None
        self._here = forks.mark()
        self.begun = False

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made it."""
        return not self._here[0]

    def at_exit(self) -> None:
        """From now on the interpreter's end closes what was forgotten, and a fork disowns it."""
        _open.add(self)

    def check(self) -> None:
        """ProducerClosed once closing has begun, ForkedProducer in a child of the process that made it."""
        if self.forked:
            raise ForkedProducer
        if self.begun:
            raise ProducerClosed

    def close(self, timeout: float) -> CloseReport:
        """Close, or wait for the close that is under way; every call returns the same report.

        On one of our own threads (in a delivery callback, in a hook) waiting would wait for itself: the close
        goes on in another thread, and what is returned is the report so far.
        """
        if self.forked:
            return CloseReport(0, 0)
        if threading.current_thread().name.startswith(THREAD_PREFIX):
            if not self.begun:
                self.begun = True
                threading.Thread(target=self._close, args=(timeout,), name="closing").start()
            return self._report or self._so_far()
        return self._close(timeout)

    def _close(self, timeout: float) -> CloseReport:
        with self._once:
            if self._report is None:
                self.begun = True
                self._report = self._finish(timeout)
                _open.discard(self)
            return self._report

    def _lost_in_a_fork(self) -> None:
        self.begun = True
        self._once = threading.Lock()  # the parent's may have been held at the fork


@atexit.register
def _close_forgotten() -> None:
    """Producers left open at the interpreter's end: settle what can be settled, within a short bound."""
    for ending in list(_open):
        ending.close(timeout=5.0)


def _forget_the_parents() -> None:
    for ending in list(_open):
        ending._lost_in_a_fork()
    _open.clear()


os.register_at_fork(after_in_child=_forget_the_parents)

"""Close a producer exactly once: explicitly, at interpreter exit, or never in a forked child."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import weakref
from collections.abc import Callable

from producer_core._internal import at_exit as _internal_at_exit  # noqa: F401  # registers its exit step first, so that it runs last
from producer_core._internal import forks
from producer_core.delivery.reports import CloseReport
from producer_core.errors import ForkedProducer, ProducerClosed

THREAD_PREFIX = "producer-core-"
"""Prefix of the names of the producer's threads."""

_open: weakref.WeakSet[Shutdown] = weakref.WeakSet()
_numbers = itertools.count()


class Shutdown:
    """Closes a producer once with `finish(timeout)`. `so_far` reports on a close that continues in another thread."""

    def __init__(self, finish: Callable[[float], CloseReport], so_far: Callable[[], CloseReport]) -> None:
        self._finish = finish
        self._so_far = so_far
        self._once = threading.Lock()
        self._report: CloseReport | None = None
        self._fork_mark = forks.mark()
        self._number = next(_numbers)
        self.begun = False
        self.reason = ""  # why the producer closed itself

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that created the producer."""
        return not self._fork_mark[0]

    def at_exit(self) -> None:
        """Register for the interpreter's exit, which closes open producers. A fork cancels this in the child."""
        _open.add(self)

    def check(self) -> None:
        """Raise ProducerClosed once closing has begun, ForkedProducer in a child of the creating process."""
        if self.forked:
            raise ForkedProducer
        if self.begun:
            raise ProducerClosed(self.reason)

    def close(self, timeout: float) -> CloseReport:
        """Close, or wait for the close in progress. Every call returns the same report.

        On one of the producer's own threads (in a delivery callback or a hook) a wait would be a deadlock. The close
        then continues in another thread, and the call returns the report so far.
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

    def _discard_in_child(self) -> None:
        self.begun = True
        self._once = threading.Lock()  # another thread of the parent may have held the lock at the fork


@atexit.register
def _close_open_producers() -> None:
    """Close the producers that are still open at interpreter exit, within 5 s each.

    The oldest is first: a producer closes the one that publishes its dead letters.
    """
    for shutdown in sorted(_open, key=lambda one: one._number):
        shutdown.close(timeout=5.0)


def _discard_parents_producers() -> None:
    for shutdown in list(_open):
        shutdown._discard_in_child()
    _open.clear()


os.register_at_fork(after_in_child=_discard_parents_producers)

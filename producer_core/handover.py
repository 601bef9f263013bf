"""The hand-over: threads that send stand still for a moment while the poll thread works.

The binding takes Python's lock (the GIL) anew for each delivery report. Beside a thread that sends, each time it gives it
back that thread is woken, mostly for nothing, and gets to run until it is told to yield, 5 ms later: a report costs more
than its send did, and reports fall behind until the queue is full. So whoever sends as much as the processor lets him gives
the poll thread a turn every thousand messages, and waits; and between turns the poll thread does not poll. Measured with
200 bytes, on two cores with a Kafka of one node: 140,000 messages a second instead of 85,000.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sized

OFTEN = 0x3FF
"""A turn where a sequence has these bits all zero: every 1,024 messages. With half as many a tenth is lost to waking."""
_SOON, _BUSY = 0.1, 0.7
"""So many messages are much when they took no more seconds, and the process had this share of a processor meanwhile."""
_REST, _LOOK = 0.05, 0.005
"""Seconds that the poll thread waits for a turn, while there is more to report at each look."""
_LONGEST = 0.05
"""Seconds that a sender waits for the poll thread's work: a callback in it may be slow, or wait for this very sender."""


class Handover:
    """Between the poll thread and all that send.

    `reports` is what the poll thread collects while it polls, `outstanding` how many messages have no report yet.
    """

    def __init__(
        self,
        reports: Sized,
        outstanding: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._reports, self._outstanding = reports, outstanding
        self._clock, self._cpu = clock, cpu
        self._before = (float("-inf"), 0.0)  # both clocks, a thousand messages ago
        self._much = False  # somebody sends much
        self._waits = True  # the poll thread waits in the client, and works only where there are reports
        self._resting, self._asked = threading.Event(), threading.Event()
        self._poller = 0

    def step_aside(self) -> None:
        """Another thousand was sent. Where that is much, let the poll thread work, and wait until it has, or for `_LONGEST`."""
        if not self._is_much():
            return
        self._much = True
        if (self._waits and not self._reports) or threading.get_ident() == self._poller:
            return
        if self._resting.is_set():
            self._resting.clear()
            self._asked.set()
        self._resting.wait(_LONGEST)

    def _is_much(self) -> bool:
        """Who pauses between messages is not in the poll thread's way: reports are heard as they come."""
        (before, spent), self._before = self._before, (self._clock(), self._cpu())
        took = self._before[0] - before
        return took <= _SOON and self._before[1] - spent >= _BUSY * took

    def hurry(self) -> None:
        """There is no room for more until something was heard."""
        self._asked.set()

    def turn(self, longest: float) -> float:
        """The poll thread's: seconds to wait in the client. Where somebody sends much it rests here, until its turn."""
        self._poller = threading.get_ident()
        self._waits = not self._much
        self._resting.set()
        if not self._much:
            return longest
        self._much = self._rest()
        self._asked.clear()
        self._resting.clear()
        return 0

    def _rest(self) -> bool:
        """Whether somebody asked; nobody will where nothing more was sent."""
        until, waiting = self._clock() + _REST, -1
        while not self._asked.wait(_LOOK):
            before, waiting = waiting, self._outstanding()
            if waiting == before or self._clock() >= until:
                return False
        return True

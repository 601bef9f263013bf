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
from queue import Empty, SimpleQueue

OFTEN = 0x3FF
"""A turn where a sequence has these bits all zero: every 1,024 messages. With half as many a tenth is lost to waking."""
_SOON, _BUSY = 0.1, 0.7
"""So many messages are much when they took no more seconds, and the process, with all its threads, had this share of a
processor meanwhile."""
_REST, _LOOK = 0.02, 0.005
"""Seconds that the poll thread waits for a turn, while there is more to report at each look; latencies contain them."""
_LONGEST = 0.05
"""Seconds that a sender waits for the poll thread's work: a callback in it may be slow, or want a lock of this very sender."""
_SKIPPED = 3
"""Turns that nobody waits for after one that lasted longer."""


class GilHandoff:
    """Between the poll thread and all that send.

    `reports` is what the poll thread collects while it polls, `outstanding` how many messages have no report yet. A sender
    may be interrupted anywhere: it holds nothing that the poll thread wants (an Event's lock would stay locked).
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
        self._skip = 0
        self._asked: SimpleQueue[threading.Lock | None] = SimpleQueue()  # who waits; None is in a hurry only
        # the poll thread's
        self._poller = 0
        self._waits = True  # in the client, and works only where there are reports
        self._served: list[threading.Lock | None] = []

    # threads that send

    def yield_to_poller(self) -> None:
        """Another thousand was sent. Where that is much, let the poll thread work, and wait until it has, or for `_LONGEST`."""
        if not self._is_much():
            return
        self._much = True
        if self._skip > 0:
            self._skip -= 1
        elif (self._reports or not self._waits) and threading.get_ident() != self._poller:
            own = threading.Lock()
            own.acquire()
            self._asked.put(own)
            if not own.acquire(timeout=_LONGEST):
                self._skip = _SKIPPED

    def _is_much(self) -> bool:
        """Who pauses between messages is not in the poll thread's way: reports are heard as they come."""
        (before, spent), self._before = self._before, (self._clock(), self._cpu())
        took = self._before[0] - before
        return took <= _SOON and self._before[1] - spent >= _BUSY * took

    def flush_soon(self) -> None:
        """Somebody waits for reports: there is no room, or nothing more is sent. The rest ends, and the next ones are heard as
        they come."""
        if self._much and self._asked.empty():
            self._asked.put(None)

    # the poll thread

    def turn(self, longest: float) -> float:
        """Seconds to wait in the client. Where somebody sends much it rests here, until its turn."""
        self._poller = threading.get_ident()
        self._let_go()
        if not self._much and self._asked.empty():
            self._waits = True
            return longest
        self._waits = False
        self._much = self._rest()
        return 0

    def end(self) -> None:
        """It has polled for the last time."""
        self._waits, self._much = True, False
        self._take_all()
        self._let_go()

    def _rest(self) -> bool:
        """Whether somebody asked; nobody will where nothing more was sent."""
        until, waiting = self._clock() + _REST, self._outstanding()
        while True:
            try:
                self._served.append(self._asked.get(timeout=_LOOK))
            except Empty:
                before, waiting = waiting, self._outstanding()
                if waiting == before or self._clock() >= until:
                    return False
            else:
                self._take_all()
                return any(one is not None for one in self._served)

    def _take_all(self) -> None:
        while not self._asked.empty():
            self._served.append(self._asked.get())

    def _let_go(self) -> None:
        """Whoever waited for the work that is done now."""
        served, self._served = self._served, []
        for one in served:
            if one is not None:
                one.release()

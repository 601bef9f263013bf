"""The hand-over: threads that send stand still for a moment while the poll thread works.

The binding takes Python's lock (the GIL) anew for each delivery report. Beside a thread that sends, each time it gives it
back that thread is woken, mostly for nothing, and gets to run until it is told to yield, 5 ms later: a report costs more
than its send did, and reports fall behind until the queue is full. So whoever sends much gives the poll thread a turn every
thousand messages, and waits; and between turns the poll thread does not poll. Measured with 200 bytes, on two cores with a
Kafka of one node: 140,000 messages a second instead of 85,000.
"""

from __future__ import annotations

import threading
from collections.abc import Sized

OFTEN = 0x3FF
"""A turn where a sequence has these bits all zero: every 1,024 messages. With half as many a tenth is lost to waking."""
_REST = 0.02
"""Seconds that the poll thread waits for a turn, and a report for being heard. Who sends fewer than 1,024 messages in that
time is not in its way; reports are then heard as they come."""
_LONGEST = 0.05
"""Seconds that a sender waits for the poll thread's work: a callback in it may be slow, or wait for this very sender."""


class Handover:
    """Between the poll thread and all that send; `reports` is what the poll thread collects while it polls."""

    def __init__(self, reports: Sized) -> None:
        self._reports = reports
        self._much = False  # somebody sends much
        self._waits = True  # the poll thread waits in the client, and works only where there are reports
        self._resting, self._asked = threading.Event(), threading.Event()
        self._poller = 0

    def step_aside(self) -> None:
        """Let the poll thread work, and wait until it has, or for `_LONGEST`."""
        self._much = True
        if (self._waits and not self._reports) or threading.get_ident() == self._poller:
            return
        if self._resting.is_set():
            self._resting.clear()
            self._asked.set()
        self._resting.wait(_LONGEST)

    def turn(self, longest: float) -> float:
        """The poll thread's: seconds to wait in the client. Where somebody sends much it rests here, until its turn."""
        self._poller = threading.get_ident()
        if not self._much:
            self._waits = True
            self._resting.set()
            return longest
        self._waits = False
        self._resting.set()
        self._much = self._asked.wait(_REST)
        self._asked.clear()
        self._resting.clear()
        return 0

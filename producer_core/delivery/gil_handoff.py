"""Let the poll thread work while threads that send at full speed pause for a moment.

confluent_kafka acquires Python's lock (the GIL) for each delivery report. When another thread sends, each release of the lock
wakes that thread, usually in vain, and the thread then runs until it has to yield, 5 ms later. A report costs more than its
send did, so reports fall behind until the queue is full. Therefore a thread that sends at full speed yields to the poll thread
every 1,024 messages and waits for it, and the poll thread does not poll in between. Measured with messages of 200 bytes on
two cores and one Kafka node: 140,000 messages a second instead of 85,000.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sized
from queue import Empty, SimpleQueue

YIELD_MASK = 0x3FF
"""A sender yields at sequences with these bits zero: every 1,024 messages. Half that interval costs a tenth of the rate."""
_BUSY_INTERVAL, _BUSY_SHARE = 0.1, 0.7
"""Sending counts as busy if 1,024 messages took no more than this time in seconds, and the process with all its threads used
at least this share of one processor during that time."""
_MAX_PAUSE, _CHECK_INTERVAL = 0.02, 0.005
"""Seconds that the poll thread waits for a sender to yield, as long as each check finds more messages sent. Latencies include
the wait."""
_MAX_YIELD = 0.05
"""Seconds that a sender waits for the poll thread: a callback there may be slow, or wait for a lock of this sender."""
_SKIPPED_YIELDS = 3
"""Yields that are skipped after one that reached `_MAX_YIELD`."""


class GilHandoff:
    """Coordinates the poll thread with the threads that send.

    `reports` collects delivery reports during a poll; `outstanding` returns the number of unreported messages. A sender may
    be interrupted at any point, so it never holds a lock that the poll thread needs. (An interrupted Event would stay locked.)
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
        self._last = (float("-inf"), 0.0)  # both clocks at the previous yield
        self._busy = False  # a thread sends at full speed
        self._skip = 0
        # A lock for each sender that waits; None asks for a poll without waiting for it.
        self._requests: SimpleQueue[threading.Lock | None] = SimpleQueue()
        # used on the poll thread
        self._poll_thread = 0
        self._in_client = True  # the poll thread waits in the client and works only when reports arrive
        self._served: list[threading.Lock | None] = []

    # threads that send

    def yield_to_poller(self) -> None:
        """Wait until the poll thread has worked, but for `_MAX_YIELD` at most. Does not wait if sending is not busy."""
        if not self._is_busy():
            return
        self._busy = True
        if self._skip > 0:
            self._skip -= 1
        elif (self._reports or not self._in_client) and threading.get_ident() != self._poll_thread:
            served = threading.Lock()
            served.acquire()
            self._requests.put(served)
            if not served.acquire(timeout=_MAX_YIELD):
                self._skip = _SKIPPED_YIELDS

    def _is_busy(self) -> bool:
        """Return whether sending is busy. A thread that pauses between messages does not delay the poll thread."""
        (before, cpu_before), self._last = self._last, (self._clock(), self._cpu())
        elapsed = self._last[0] - before
        return elapsed <= _BUSY_INTERVAL and self._last[1] - cpu_before >= _BUSY_SHARE * elapsed

    def flush_soon(self) -> None:
        """End the pause of the poll thread: a thread waits for reports, because there is no room or it sends no more."""
        if self._busy and self._requests.empty():
            self._requests.put(None)

    # the poll thread

    def poll_timeout(self, longest: float) -> float:
        """Return the timeout of the next poll in seconds. While sending is busy, wait here for a sender to yield first."""
        self._poll_thread = threading.get_ident()
        self._release_served()
        if not self._busy and self._requests.empty():
            self._in_client = True
            return longest
        self._in_client = False
        self._busy = self._wait_for_request()
        return 0

    def end(self) -> None:
        """Release all waiting senders: the poll thread polls no more."""
        self._in_client, self._busy = True, False
        self._take_requests()
        self._release_served()

    def _wait_for_request(self) -> bool:
        """Return whether a sender yielded. Stop waiting as soon as no more messages are sent."""
        deadline, outstanding = self._clock() + _MAX_PAUSE, self._outstanding()
        while True:
            try:
                self._served.append(self._requests.get(timeout=_CHECK_INTERVAL))
            except Empty:
                before, outstanding = outstanding, self._outstanding()
                if outstanding == before or self._clock() >= deadline:
                    return False
            else:
                self._take_requests()
                return any(request is not None for request in self._served)

    def _take_requests(self) -> None:
        while not self._requests.empty():
            self._served.append(self._requests.get())

    def _release_served(self) -> None:
        """Release the senders that waited for the work that is now done."""
        served, self._served = self._served, []
        for request in served:
            if request is not None:
                request.release()

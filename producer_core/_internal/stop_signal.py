"""The wish to stop, as SIGINT, SIGTERM and SIGHUP express it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """Waits for a signal without a lock.

    A handler runs between two instructions of the main thread, maybe inside `Event.wait`, whose lock
    `Event.set` would want: a byte through a pipe cannot hang. Python writes it where the signal arrives, also in
    another thread or just before the main thread begins to wait, where its handlers would have to wait for us. Handlers
    are set even where a signal was ignored, as it is for the background jobs of a shell script.
    """

    def __init__(self) -> None:
        self.requested = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        for number in _SIGNALS:
            signal.signal(number, self._asked)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether a signal came, waiting for it at most `timeout` seconds; None waits for ever."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self.requested:
            left = None if until is None else max(0.0, until - time.monotonic())
            woken, _, _ = select.select([self._read], [], [], left)
            if not woken:
                break
            os.read(self._read, 512)  # perhaps of a signal that is not for us
        return self.requested

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b".")  # somebody else may have asked to be woken in our place

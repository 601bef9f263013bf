"""The wish to stop, as SIGINT, SIGTERM and SIGHUP express it."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Waits for a signal without a lock.

    A handler runs between two instructions of the main thread, maybe inside `Event.wait`, whose lock
    `Event.set` would want: a byte through a pipe cannot hang. Handlers are set even where a signal was
    ignored, as it is for the background jobs of a shell script.
    """

    def __init__(self) -> None:
        self.asked = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in _SIGNALS:
            signal.signal(number, self._asked)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether a signal came, waiting for it at most `timeout` seconds; None waits for ever."""
        if not self.asked:
            select.select([self._read], [], [], timeout)
        return self.asked

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked = True
            os.write(self._write, b".")

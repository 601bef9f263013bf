"""Wait for SIGINT, SIGTERM or SIGHUP, or exit at one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """Waits for a signal without a lock.

    A handler runs between two instructions of the main thread, possibly inside `Event.wait`, whose lock `Event.set` needs;
    writing a byte to a pipe cannot deadlock. Python's wakeup fd writes that byte where the signal arrives, even in
    another thread or just before the main thread starts to wait, when Python handlers cannot run yet. The handlers replace
    an ignored signal too, because shells ignore SIGINT for background jobs.
    """

    def __init__(self) -> None:
        self.requested = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds (None: forever) and return whether a signal has arrived."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.requested:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self._read], [], [], left)
            if not readable:
                break
            os.read(self._read, 512)  # possibly of another signal
        return self.requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b".")  # other code may have replaced the wakeup fd


@contextlib.contextmanager
def exit_on_signal() -> Iterator[None]:
    """Raise SystemExit at SIGTERM or SIGHUP inside the block, so that its cleanup runs. Use it in the main thread."""
    previous = {number: signal.signal(number, _exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> None:
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # a second signal would interrupt the cleanup
    raise SystemExit(128 + number)

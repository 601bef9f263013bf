"""Streams of messages, each at its own rate on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from producer_core.errors import NotAccepted

logger = logging.getLogger(__name__)

_FORGIVEN = 1.0
"""Seconds of delay that a stream makes up for; a longer one is forgotten."""


@dataclass(frozen=True)
class Stream:
    """What one topic gets: `rate` is asked for messages a second again and again, `send` makes and sends one."""

    topic: str
    rate: Callable[[], float]
    send: Callable[[], None]


class Streams:
    """Runs streams, each on a thread of its own, until the duration is over or `stop` is called."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, streams: Iterable[Stream], duration: float | None = None) -> None:
        """`duration` in seconds, None for ever."""
        self._stopping.clear()
        end = None if duration is None else self._clock() + duration
        self._threads = [
            threading.Thread(target=self._run, args=(stream, end), name=f"stream-{stream.topic}", daemon=True)
            for stream in streams
        ]
        for thread in self._threads:
            thread.start()

    @property
    def active(self) -> int:
        """Streams that run."""
        return sum(thread.is_alive() for thread in self._threads)

    def wait(self) -> None:
        """Until every stream is over; a KeyboardInterrupt stops them."""
        try:
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(0.2)
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout: float = 5.0) -> None:
        """No message begins after this; the streams have `timeout` seconds for the ones they are at."""
        self._stopping.set()
        deadline = self._clock() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock()))

    def _run(self, stream: Stream, end: float | None) -> None:
        due, refused = self._clock(), False
        while True:
            due = max(due, self._clock() - _FORGIVEN) + 1 / max(stream.rate(), 1e-6)
            if end is not None and due > end:
                self._stopping.wait(max(0.0, end - self._clock()))
                return
            if self._stopping.wait(max(0.0, due - self._clock())):
                return
            try:
                stream.send()
                refused = False
            except NotAccepted as error:
                if not refused:  # said once, until one is accepted again
                    logger.warning("record not accepted", extra={"topic": stream.topic, "error": str(error)})
                refused = True

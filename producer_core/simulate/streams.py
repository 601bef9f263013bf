"""Run streams of messages, each at its own rate on its own thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from producer_core._internal.log_fields import with_fields
from producer_core.errors import NotAccepted

logger = logging.getLogger(__name__)

_MAX_BACKLOG = 1.0
"""Seconds of delay that a stream makes up for; it ignores a longer delay."""


@dataclass(frozen=True)
class Stream:
    """A topic's stream: `rate` returns the current messages per second, `send` makes and sends one message."""

    topic: str
    rate: Callable[[], float]
    send: Callable[[], None]


class Streams:
    """Runs streams, each on its own thread, until the duration is over or `stop` is called."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, streams: Iterable[Stream], duration: float | None = None) -> None:
        """Start the streams, for `duration` seconds, or without end for None."""
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
        """Return the number of running streams."""
        return sum(thread.is_alive() for thread in self._threads)

    def wait(self) -> None:
        """Wait until every stream has ended; a KeyboardInterrupt stops them."""
        try:
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(0.2)
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout: float = 5.0) -> None:
        """Start no more messages; wait up to `timeout` seconds for those being sent."""
        self._stopping.set()
        deadline = self._clock() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock()))

    def _run(self, stream: Stream, end: float | None) -> None:
        due, refused = self._clock(), False
        while True:
            due = max(due, self._clock() - _MAX_BACKLOG) + 1 / max(stream.rate(), 1e-6)
            if end is not None and due > end:
                self._stopping.wait(max(0.0, end - self._clock()))
                return
            if self._stopping.wait(max(0.0, due - self._clock())):
                return
            try:
                stream.send()
                refused = False
            except NotAccepted as error:
                if not refused:  # logged once, until a record is accepted again
                    logger.warning(**with_fields("record not accepted", topic=stream.topic, error=str(error)))
                refused = True

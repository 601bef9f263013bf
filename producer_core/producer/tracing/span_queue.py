"""End spans on a thread of their own, so that a span processor or exporter that blocks delays no delivery."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger

logger = queued_logger(__name__)

MAX_QUEUED = 10_000
"""Spans that may wait for their end. Beyond it a span is dropped, and the drops are logged."""


class SpanQueue:
    """Runs functions in their order on one thread, which starts with the first one. `put` never waits."""

    def __init__(self, *, max_queued: int = MAX_QUEUED) -> None:
        self._max_queued = max_queued
        self._queue: SimpleQueue[Callable[[], None] | None] = (
            SimpleQueue()
        )  # an interrupt cannot leave it locked
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self.dropped = 0

    def put(self, end: Callable[[], None]) -> None:
        """Queue the end of a span; drop it when the queue is full."""
        if self._queue.qsize() >= self._max_queued:
            self.dropped += 1
            logger.warning(**with_fields("trace spans dropped", reason="the span processor is too slow"))
            return
        self._queue.put(end)
        if self._thread is None:
            with contextlib.suppress(RuntimeError):  # no thread left, or the interpreter exits
                self._start()

    def close(self, timeout: float) -> bool:
        """End all queued spans within `timeout` seconds; return whether all have. Later ones are dropped."""
        deadline = time.monotonic() + timeout
        if self._thread is None:
            return True
        self._queue.put(None)
        return self._ended.wait(max(0.0, deadline - time.monotonic()))

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="producer-core-spans", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while (end := self._queue.get()) is not None:
            try:
                end()
            except BaseException:  # a processor's error must not end the thread, nor sys.exit() in it
                logger.exception("trace span not ended")
        self._ended.set()

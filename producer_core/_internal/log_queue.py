"""Write log lines on a thread of their own, so that a handler that blocks, fails or sends messages delays no producer.

The queue is bounded, and the same cause is written at most once a minute. Further events of a cause are counted, and the
count is written when the minute has passed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from producer_core._internal.at_exit import run_last

REPEAT_AFTER_S = 60.0
"""Minimum seconds between two lines of the same cause."""
_MAX_LINES = 1_000
_MAX_CAUSES = 500
_EXIT_TIMEOUT_S = 1.0
_NO_CALLER = ("(unknown file)", 0, "(unknown function)")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


@dataclass(frozen=True, slots=True)
class Line:
    """A log line, with the time, the thread and the place of the call."""

    logger: logging.Logger
    level: int
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    exc_info: ExcInfo | None = None
    caller: tuple[str, int, str] = _NO_CALLER
    at: float = field(default_factory=time.time)
    thread: int = field(default_factory=threading.get_ident)
    thread_name: str = field(default_factory=lambda: threading.current_thread().name)

    def with_count(self, count: int) -> Line:
        """Return the line for `count` further events of its cause."""
        separator = ", " if ": " in self.text else ": "
        return replace(
            self,
            text=f"{self.text}{separator}repeated={count}",
            fields={**self.fields, "repeated": count},
            at=time.time(),
        )

    def write(self) -> None:
        record = self.logger.makeRecord(
            self.logger.name, self.level, *self.caller[:2], self.text, (), self.exc_info, self.caller[2],
            dict(self.fields),
        )  # fmt: skip
        record.relativeCreated -= (record.created - self.at) * 1000
        record.created, record.msecs = self.at, self.at % 1 * 1000
        record.thread, record.threadName = self.thread, self.thread_name
        self.logger.handle(record)


@dataclass(slots=True)
class _Cause:
    """A cause: its latest line, the time of the last written one, and the number of events since."""

    line: Line
    group: Hashable
    logged_at: float
    count: int = 0
    superseded: bool = False  # a newer state has replaced this one, so its count is not written

    @property
    def pending(self) -> bool:
        return self.count > 0 and not self.superseded


class LogQueue:
    """Queues lines from any thread. Its thread starts with a line and ends when no line and no count is left."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget all lines and causes. A child process calls this after a fork, because it has no log thread."""
        self._changed = threading.Condition()  # guards everything below
        self._lines: deque[Line] = deque()
        self._causes: dict[Hashable, _Cause] = {}
        self._dropped = 0  # lines without room, since the last line about them
        self._drops_logged_at = -REPEAT_AFTER_S
        self._writing = False
        self._at_once = False  # the process ends, so no count waits for its minute
        self._thread: threading.Thread | None = None

    def put(self, line: Line, *, cause: Hashable = None, group: Hashable = None) -> None:
        """Queue a line. With a cause, count it instead while the last line of this cause is less than a minute old.

        Lines of one `group` describe a state: after a newer one no count of the others is written, so that the
        last line about a connection is never an outdated one. Lines that a handler causes on the log thread are dropped.
        """
        with self._changed:
            if self._on_log_thread():
                return
            if group is not None:
                for key, other in list(self._causes.items()):
                    if other.group == group and key != cause:
                        other.superseded = True
            if cause is None or self._is_due(line, cause, group):
                self._append(line)
            self._wake_thread()

    def repeats(self, cause: Hashable) -> bool:
        """Count an event whose cause was logged within the last minute; return False if it needs a line."""
        with self._changed:
            if self._on_log_thread():
                return True
            known = self._causes.get(cause)
            if known is None or not self._counts(known):
                return False
            known.count += 1
            self._wake_thread()
            return True

    def forget(self, causes: Collection[Hashable]) -> None:
        """Write no count for these causes, because their state has ended."""
        with self._changed:
            for cause in causes:
                if cause in self._causes:
                    self._causes[cause].count = 0

    def drain(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until all queued lines are written; return whether they are."""
        with self._changed:
            if self._on_log_thread():
                return False
            if self._wake_thread():
                return self._changed.wait_for(lambda: not self._lines and not self._writing, timeout)
        while (line := self._take_line()) is not None:  # the interpreter exits and starts no thread
            _write(line)
        return True

    def finish(self, timeout: float = _EXIT_TIMEOUT_S) -> None:
        """Write everything, also counts whose minute has not passed, for at most `timeout` seconds."""
        with self._changed:
            self._at_once = True
            self._queue_counts()
        self.drain(timeout)
        with self._changed:
            self._at_once = False

    # under the lock

    def _on_log_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def _is_due(self, line: Line, cause: Hashable, group: Hashable) -> bool:
        known = self._causes.get(cause)
        if known is not None and self._counts(known):
            known.count += 1
            known.line, known.superseded = _kept(line), False
            return False
        if known is None and len(self._causes) >= _MAX_CAUSES:
            self._forget_old_causes()
            if len(self._causes) >= _MAX_CAUSES:
                self._dropped += 1
                return False
        self._causes[cause] = _Cause(_kept(line), group, self._clock())
        return True

    def _counts(self, cause: _Cause) -> bool:
        return cause.pending or self._clock() - cause.logged_at < REPEAT_AFTER_S

    def _forget_old_causes(self) -> None:
        self._causes = {key: cause for key, cause in self._causes.items() if self._counts(cause)}

    def _append(self, line: Line) -> None:
        if len(self._lines) < _MAX_LINES:
            self._lines.append(line)
        else:
            self._dropped += 1

    def _wake_thread(self) -> bool:
        """Wake the log thread if it has work; return False if it cannot be started."""
        if self._thread is None and (self._lines or self._next_due() is not None):
            thread = threading.Thread(target=self._run, name="producer-core-log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread left, or the interpreter exits: the next line tries again
                return False
            self._thread = thread
        self._changed.notify_all()
        return True

    def _queue_counts(self) -> None:
        """Queue a line for each cause with a count whose minute has passed."""
        now = self._clock()
        for cause in self._causes.values():
            if cause.pending and (self._at_once or now - cause.logged_at >= REPEAT_AFTER_S):
                self._append(cause.line.with_count(cause.count))
                cause.logged_at, cause.count = now, 0
        if self._dropped and not self._lines and (self._at_once or self._drops_due() <= now):
            text = f"log records dropped: count={self._dropped}"
            self._lines.append(Line(_LOGGER, logging.WARNING, text, {"count": self._dropped}))
            self._drops_logged_at, self._dropped = now, 0

    def _drops_due(self) -> float:
        return self._drops_logged_at + REPEAT_AFTER_S

    def _next_due(self) -> float | None:
        due = [cause.logged_at + REPEAT_AFTER_S for cause in self._causes.values() if cause.pending]
        if self._dropped:
            due.append(self._drops_due())
        return min(due, default=None)

    # the log thread

    def _run(self) -> None:
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        line = self._next_line()
        if line is not None:
            _write(line)
        return line is not None

    def _next_line(self) -> Line | None:
        """Wait for a line. Return None, and end the thread, if no count is left to write later."""
        with self._changed:
            while True:
                if (line := self._take_line()) is not None:
                    return line
                if (due := self._next_due()) is None:
                    self._thread = None
                    return None
                self._changed.wait(max(0.01, due - self._clock()))

    def _take_line(self) -> Line | None:
        with self._changed:
            self._queue_counts()
            self._writing = bool(self._lines)
            self._changed.notify_all()
            return self._lines.popleft() if self._lines else None


def _kept(line: Line) -> Line:
    """Return a line without its traceback, whose frames would keep the objects of the caller in memory."""
    return line if line.exc_info is None else replace(line, exc_info=None)


def _write(line: Line) -> None:
    """Write a line. An error of a handler is printed, as the handlers of the standard library do."""
    try:
        line.write()
    except BaseException:  # noqa: BLE001  also SystemExit: the next line may have another handler
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc(file=sys.stderr)


_LOGGER = logging.getLogger("producer_core")
QUEUE = LogQueue()
"""The queue of the process. All producers share it."""

os.register_at_fork(after_in_child=QUEUE.reset)
run_last(QUEUE.finish)

"""The event log: lines of the log for a connection that fails or recovers, and for the causes of dead letters.

A thread of its own writes them, so a logging handler that blocks delays no message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from producer_core._internal.masking import mask_or_hide
from producer_core.events import DeadLetter, Hook, Notice

logger = logging.getLogger(__name__)

_AGAIN = 60.0
"""Seconds between two lines of the same cause."""
_CAUSES = 100
_LINES = 1_000
_FAILED, _LOST, _BACK = "broker connection failed", "no broker is connected", "connected to the brokers again"


@dataclass(slots=True)
class _Cause:
    """A cause of dead letters: its last line, and how many dead letters came since."""

    said_at: float
    about: Mapping[str, Any]
    more: int = 0


class EventLog(Hook):
    """Hooks only leave an entry; the thread starts with the first one and ends when nothing is left to write."""

    def __init__(self, *, log: logging.Logger = logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._changed = threading.Condition()  # guards everything below
        self._lines: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=_LINES)
        self._causes: dict[tuple[str, str], _Cause] = {}
        self._failing: dict[str, float] = {}  # reason of a failed connection to the time of its line
        self._troubled = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    # the hook

    def connection_failed(self, reason: str) -> None:
        now = self._clock()
        with self._changed:
            if now - self._failing.get(reason, -_AGAIN) < _AGAIN or self._stopping:
                return
            if len(self._failing) >= _CAUSES:
                self._failing.clear()
            self._failing[reason] = now
            self._troubled = True
            self._put(_FAILED, {"reason": mask_or_hide(reason)})

    def notice(self, notice: Notice) -> None:
        with self._changed:
            if notice.kind == "connection_lost":
                self._troubled = True
                self._put(_LOST, {"reason": mask_or_hide(notice.text)})
            elif notice.kind == "connected" and self._troubled:
                self._troubled = False
                self._put(_BACK, {})

    def died(self, dead_letter: DeadLetter) -> None:
        key, now = (dead_letter.topic, dead_letter.fingerprint), self._clock()
        with self._changed:
            known = self._causes.get(key)
            if known is not None:
                known.more += 1
            elif len(self._causes) < _CAUSES:
                about = {
                    "topic": dead_letter.topic,
                    "code": dead_letter.code,
                    "error": mask_or_hide(dead_letter.error_text),
                }
                self._causes[key] = _Cause(now, about)
                self._put("message dead", {**about, "count": 1})

    def stop(self, timeout: float = 0.5) -> None:
        """Write what is left; a handler that blocks is not waited for longer than this."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    # the thread

    def _put(self, text: str, about: Mapping[str, Any]) -> None:
        self._lines.append((text, about))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="producer-core-log", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            for text, about in lines:
                said = ", ".join(f"{name}={value}" for name, value in about.items())
                self._log.warning(f"{text}: {said}" if said else text, extra=dict(about))

    def _next(self) -> list[tuple[str, Mapping[str, Any]]] | None:
        """The lines that are due, after a wait; None, and no thread any more, when there are none to come."""
        with self._changed:
            while True:
                self._count()
                lines = list(self._lines)
                self._lines.clear()
                if lines:
                    return lines
                if self._stopping or not self._causes:
                    self._thread = None
                    return None
                soonest = min(cause.said_at for cause in self._causes.values()) + _AGAIN
                self._changed.wait(max(0.01, soonest - self._clock()))

    def _count(self) -> None:
        """A line for each cause that brought more dead letters in its minute; one that brought none is forgotten."""
        now = self._clock()
        for key, cause in list(self._causes.items()):
            if now - cause.said_at < _AGAIN and not self._stopping:
                continue
            if cause.more:
                self._lines.append(("more messages dead", {**cause.about, "count": cause.more}))
                cause.said_at, cause.more = now, 0
            else:
                del self._causes[key]

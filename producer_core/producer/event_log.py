"""Log broker connection changes, a damaged or full journal, lost records, and the causes of dead letters.

A separate thread writes the lines, so a logging handler that blocks delays no message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core.events import DeadLetter, Hook, Notice

logger = logging.getLogger(__name__)

_REPEAT_AFTER_S = 60.0
"""Minimum seconds between two lines of the same cause."""
_MAX_CAUSES = 100
_MAX_LINES = 1_000
_FAILED, _LOST, _RESTORED = "broker connection failed", "no broker is connected", "broker connection restored"

_JOURNAL = {
    "journal_damaged": "journal damaged",
    "journal_torn": "journal write interrupted",
    "journal_full": "journal full",
}
_LOSSES = {"acknowledged_lost": "acknowledged records lost", "topic_recreated": "topic deleted or recreated"}


@dataclass(slots=True)
class _Cause:
    """A cause of dead letters: the time of its last line, its fields, and the number of dead letters since."""

    logged_at: float
    fields: Mapping[str, Any]
    count: int = 0


class EventLog(Hook):
    """Queues log lines from hook calls. Its thread starts with the first line and ends when no line is due."""

    def __init__(self, *, log: logging.Logger = logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._changed = threading.Condition()  # guards everything below
        self._lines: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=_MAX_LINES)
        self._causes: dict[tuple[str, str], _Cause] = {}
        self._logged: dict[tuple[str, str], float] = {}  # per text and reason, the time of the last line
        self._failed_before = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    # hook methods

    def connection_failed(self, reason: str) -> None:
        with self._changed:
            if self._stopping or not self._is_due(_FAILED, reason):
                return
            self._failed_before = True
            self._put(_FAILED, {"reason": mask_or_hide(reason)})

    def notice(self, notice: Notice) -> None:
        with self._changed:
            if notice.kind == "connection_lost":
                self._failed_before = True
                self._put(_LOST, {"reason": mask_or_hide(notice.text)})
            elif notice.kind == "connected" and self._failed_before:
                self._failed_before = False
                self._put(_RESTORED, {})
            elif notice.kind in _JOURNAL and self._is_due(_JOURNAL[notice.kind], notice.text):
                self._put(_JOURNAL[notice.kind], {"reason": notice.text})
            elif notice.kind in _LOSSES:
                self._put(_LOSSES[notice.kind], {"reason": notice.text})

    def died(self, dead_letter: DeadLetter) -> None:
        key, now = (dead_letter.topic, dead_letter.fingerprint), self._clock()
        with self._changed:
            known = self._causes.get(key)
            if known is not None:
                known.count += 1
            elif len(self._causes) < _MAX_CAUSES:
                fields = {
                    "topic": dead_letter.topic,
                    "code": dead_letter.code,
                    "error": mask_or_hide(dead_letter.error_text),
                }
                self._causes[key] = _Cause(now, fields)
                self._put("dead letter", {**fields, "count": 1})

    def stop(self, timeout: float = 0.5) -> None:
        """Write the remaining lines. Wait at most `timeout` seconds for a handler that blocks."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _is_due(self, text: str, reason: str) -> bool:
        """Return whether the last line with this text and reason is old enough for another one, and note its time."""
        now, cause = self._clock(), (text, reason)
        if now - self._logged.get(cause, -_REPEAT_AFTER_S) < _REPEAT_AFTER_S:
            return False
        if len(self._logged) >= _MAX_CAUSES:
            self._logged.clear()
        self._logged[cause] = now
        return True

    # log thread

    def _put(self, text: str, fields: Mapping[str, Any]) -> None:
        self._lines.append((text, fields))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="producer-core-log", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            for text, fields in lines:
                self._log.warning(**with_fields(text, **fields))

    def _next(self) -> list[tuple[str, Mapping[str, Any]]] | None:
        """Wait for lines that are due and return them. Return None, and end the thread, if no more can come."""
        with self._changed:
            while True:
                self._queue_repeats()
                lines = list(self._lines)
                self._lines.clear()
                if lines:
                    return lines
                if self._stopping or not self._causes:
                    self._thread = None
                    return None
                soonest = min(cause.logged_at for cause in self._causes.values()) + _REPEAT_AFTER_S
                self._changed.wait(max(0.01, soonest - self._clock()))

    def _queue_repeats(self) -> None:
        """Queue a line for each cause with more dead letters since its last line; drop causes without any."""
        now = self._clock()
        for key, cause in list(self._causes.items()):
            if now - cause.logged_at < _REPEAT_AFTER_S and not self._stopping:
                continue
            if cause.count:
                self._lines.append(("more dead letters", {**cause.fields, "count": cause.count}))
                cause.logged_at, cause.count = now, 0
            else:
                del self._causes[key]

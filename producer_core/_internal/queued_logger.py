"""A logger for code on the send and delivery path: it only queues its lines, and limits each cause to one a minute."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Hashable, Mapping
from typing import Any

from producer_core._internal.log_queue import QUEUE, ExcInfo, Line, LogQueue

_FREE_TEXTS = frozenset({"error", "outcome", "problem", "ranges", "reason", "why"})
"""Fields with a text in which only numbers may differ between two events of the same cause."""
_NUMBERS = re.compile(r"\d[\d.,]*")


class QueuedLogger:
    """Has the methods of a `logging.Logger`. The level is checked at the call, filters and handlers on the log thread.

    Without `limited` every line is written, also if its cause repeats.
    """

    def __init__(self, logger: logging.Logger, *, limited: bool = True, queue: LogQueue = QUEUE) -> None:
        self._logger = logger
        self._limited = limited
        self._queue = queue

    def debug(self, msg: str, *args: Any, extra: Mapping[str, Any] | None = None) -> None:
        self._put(logging.DEBUG, msg, args, extra)

    def info(self, msg: str, *args: Any, extra: Mapping[str, Any] | None = None) -> None:
        self._put(logging.INFO, msg, args, extra)

    def warning(
        self, msg: str, *args: Any, extra: Mapping[str, Any] | None = None, group: Hashable = None
    ) -> None:
        """Log a warning. Lines of one `group` describe a state, see `LogQueue.put`."""
        self._put(logging.WARNING, msg, args, extra, group=group)

    def error(self, msg: str, *args: Any, extra: Mapping[str, Any] | None = None) -> None:
        self._put(logging.ERROR, msg, args, extra)

    def critical(self, msg: str, *args: Any, extra: Mapping[str, Any] | None = None) -> None:
        self._put(logging.CRITICAL, msg, args, extra)

    def exception(self, msg: str, *args: Any, extra: Mapping[str, Any] | None = None) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._put(logging.ERROR, msg, args, extra, sys.exc_info())

    def log(self, level: int, msg: str, *args: Any, extra: Mapping[str, Any] | None = None) -> None:
        self._put(level, msg, args, extra)

    def _put(
        self,
        level: int,
        msg: str,
        args: tuple[Any, ...],
        extra: Mapping[str, Any] | None,
        exc_info: ExcInfo | None = None,
        group: Hashable = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        frame = sys._getframe(2)
        caller = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        line = Line(self._logger, level, msg % args if args else msg, extra or {}, exc_info, caller)
        self._queue.put(line, cause=_cause(line) if self._limited else None, group=group)


def queued_logger(name: str) -> QueuedLogger:
    """Return the queued logger of a module."""
    return QueuedLogger(logging.getLogger(name))


def _cause(line: Line) -> Hashable:
    """Return what makes two events the same cause: everything but the numbers, the numbers inside free texts, and a message's id."""
    fields = tuple(
        (name, _NUMBERS.sub("#", str(value)) if name in _FREE_TEXTS else str(value))
        for name, value in line.fields.items()
        if name != "message_id" and not isinstance(value, int | float)
    )
    kind = line.exc_info[0] if line.exc_info else None
    text = line.text.partition(": ")[0] if fields else _NUMBERS.sub("#", line.text)
    return line.logger.name, line.level, text, fields, kind

"""Functions of the user's that we call: what they raise; values of the user's that a message shows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


def is_containable(error: BaseException) -> bool:
    """Whether what such a function raised is logged, and we go on.

    On a thread of ours everything is: a `sys.exit()` or a CancelledError would end the thread, and nobody would hear of a
    message again. On the main thread an interrupt is the user's, and goes on.
    """
    return isinstance(error, Exception) or threading.current_thread() is not threading.main_thread()


def call_both(ours: Callable[[Any], None], theirs: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """Return a callback for the Kafka client that calls ours, then the one that the user's settings have."""
    if theirs is None:
        return ours

    def called(heard: Any) -> None:
        ours(heard)
        try:
            theirs(heard)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception("a callback of the client's settings failed")

    return called


def short_repr(value: Any, limit: int = 60) -> str:
    """Return the repr of any value, cut to `limit`; its type where it has none, as an int of 5,000 digits."""
    try:
        return f"{value!r:.{limit}}"
    except Exception:  # noqa: BLE001  a caller's own __repr__, or an int beyond Python's limit
        return f"a value of type {type(value).__name__}"

"""Call user functions safely, and format user values for messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from producer_core._internal.queued_logger import queued_logger

logger = queued_logger(__name__)


def is_containable(error: BaseException) -> bool:
    """Whether an exception from a user function is logged instead of raised.

    On the producer's own threads all are: a `sys.exit()` or a CancelledError would end the thread, and no further message
    would be settled. On the main thread an interrupt belongs to the user and is raised.
    """
    return isinstance(error, Exception) or threading.current_thread() is not threading.main_thread()


def call_both(ours: Callable[[Any], None], theirs: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """Return a callback for the Kafka client that calls ours, then the one from the user's settings."""
    if theirs is None:
        return ours

    def callback(event: Any) -> None:
        ours(event)
        try:
            theirs(event)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception("a callback from the client's settings failed")

    return callback


def short_repr(value: Any, limit: int = 60) -> str:
    """Return the repr of a value, cut to `limit` characters. Without a repr, such as an int of 5,000 digits, name its type."""
    try:
        return f"{value!r:.{limit}}"
    except Exception:  # noqa: BLE001  a caller's own __repr__, or an int beyond Python's limit
        return f"a value of type {type(value).__name__}"

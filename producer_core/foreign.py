"""Functions of the user's that we call: what they raise; values of the user's that a message shows."""

from __future__ import annotations

import threading
from typing import Any


def ends_here(error: BaseException) -> bool:
    """Whether what such a function raised is logged, and we go on.

    On a thread of ours everything is: a `sys.exit()` or a CancelledError would end the thread, and nobody would hear of a
    message again. On the main thread an interrupt is the user's, and goes on.
    """
    return isinstance(error, Exception) or threading.current_thread() is not threading.main_thread()


def shown(value: Any, limit: int = 60) -> str:
    """Return the repr of any value, cut to `limit`; its type where it has none, as an int of 5,000 digits."""
    try:
        return f"{value!r:.{limit}}"
    except Exception:  # noqa: BLE001  a caller's own __repr__, or an int beyond Python's limit
        return f"a value of type {type(value).__name__}"

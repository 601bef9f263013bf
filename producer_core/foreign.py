"""Functions of the user's that we call: what they raise."""

from __future__ import annotations

import threading


def ends_here(error: BaseException) -> bool:
    """Whether what such a function raised is logged, and we go on.

    On a thread of ours everything is: a `sys.exit()` or a CancelledError would end the thread, and nobody would hear of a
    message again. On the main thread an interrupt is the user's, and goes on.
    """
    return isinstance(error, Exception) or threading.current_thread() is not threading.main_thread()

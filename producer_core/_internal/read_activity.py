"""A look: whether somebody reads the store, so that recorders write each second only while somebody does.

A reader leaves the time on the gate that it passes anyway. Threads that read on their own account do not count.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

RECENT_S = 10.0
"""Seconds for which a look counts: whoever follows a page reads again sooner."""

_thread = threading.local()


def mark_background_thread() -> None:
    """Of this thread: it reads for itself, as one that judges alerts does, and nobody waits for what it sees."""
    _thread.unattended = True


@contextlib.contextmanager
def unattended() -> Iterator[None]:
    """A block in which nobody looks, either: opening a store reads its version."""
    before = getattr(_thread, "unattended", False)
    _thread.unattended = True
    try:
        yield
    finally:
        _thread.unattended = before


def record_read(gate: int | None) -> None:
    """Leave the time on the gate; a folder in which nothing may be written is no obstacle."""
    if gate is not None and not getattr(_thread, "unattended", False):
        with contextlib.suppress(OSError):
            os.utime(gate)


def recently_read(gate: Path) -> bool:
    """Whether somebody looked within the last seconds. A clock that was set back means only that it seems so."""
    try:
        return abs(time.time() - gate.stat().st_mtime) < RECENT_S
    except OSError:
        return False

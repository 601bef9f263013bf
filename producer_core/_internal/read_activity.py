"""Record when the store was last read by a person, so that recorders write every second only while it is.

A reader updates the modification time of the gate file that it locks anyway. Background threads do not count.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

RECENT_S = 10.0
"""Seconds for which a read counts. An open page reads again sooner."""

_thread = threading.local()


def mark_background_thread() -> None:
    """Exclude this thread's reads, such as those of alert evaluation, because no person waits for their result."""
    _thread.unattended = True


@contextlib.contextmanager
def unattended() -> Iterator[None]:
    """Exclude the reads of a block: opening a store reads its version."""
    before = getattr(_thread, "unattended", False)
    _thread.unattended = True
    try:
        yield
    finally:
        _thread.unattended = before


def record_read(gate: int | None) -> None:
    """Update the time of the gate file. A read-only directory is not an error."""
    if gate is not None and not getattr(_thread, "unattended", False):
        with contextlib.suppress(OSError):
            os.utime(gate)


def recently_read(gate: Path) -> bool:
    """Whether the store was read within RECENT_S seconds. A clock that was set back can only cause a false yes."""
    try:
        return abs(time.time() - gate.stat().st_mtime) < RECENT_S
    except OSError:
        return False

"""Run a checkpoint that a kill can interrupt without damage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb

from producer_core.store import write_ahead_log
from producer_core.store.undo_log import UndoLog

_MAX_AGE, _MAX_LOG_SIZE = 60.0, 4096
"""Seconds since the last checkpoint, and bytes of the log, about 15 heartbeats: each borrow reads the log, 0.06 ms each."""


def may_wait(path: Path) -> bool:
    """Whether routine writes may stay in the write-ahead log. Only a checkpoint changes the file's modification time."""
    try:
        log = write_ahead_log.path_of(path).stat().st_size
        return log <= _MAX_LOG_SIZE and abs(time.time() - path.stat().st_mtime) < _MAX_AGE
    except OSError:
        return False


@contextlib.contextmanager
def checkpointed(instance: duckdb.DuckDBPyConnection, alias: str, path: Path) -> Iterator[None]:
    """Move the write-ahead log's content to the file, and yield for the detach. The content stays in the log if that fails,
    for example on a full disk."""
    with contextlib.ExitStack() as until_detached:
        with contextlib.suppress(OSError, duckdb.Error):
            if write_ahead_log.path_of(path).stat().st_size:
                undo_log = UndoLog(path)
                until_detached.enter_context(undo_log.saved(instance, alias))
                instance.execute(f"CHECKPOINT {alias}")
                undo_log.discard()
        yield

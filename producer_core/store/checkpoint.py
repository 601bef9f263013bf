"""Run a checkpoint that a kill can interrupt without damage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from producer_core.store import write_ahead_log
from producer_core.store.undo_log import UndoLog


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

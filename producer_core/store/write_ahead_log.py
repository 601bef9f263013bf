"""The write-ahead log that DuckDB keeps beside the store's file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def create(path: Path) -> None:
    """Create the write-ahead log, which holds message bodies, for its owner only; DuckDB would apply the umask."""
    with contextlib.suppress(OSError):  # without room, DuckDB's own error is more specific
        os.close(os.open(path_of(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def delete_empty(path: Path) -> None:
    """Delete an empty log: DuckDB deletes only a log that it has written."""
    log = path_of(path)
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()


def set_aside(path: Path) -> Path:
    """Rename a log that does not belong to the store's file, and return its new path."""
    orphan = path.with_name(path.name + ".wal.orphan")
    path_of(path).replace(orphan)
    return orphan


def path_of(path: Path) -> Path:
    return path.with_name(path.name + ".wal")

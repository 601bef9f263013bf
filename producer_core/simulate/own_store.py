"""Give each demo run on the embedded broker a new store: dead letters of a broker that ended cannot be replayed."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.file_lock import FileLock
from producer_core.errors import StoreLocked
from producer_core.store.store_lock import StoreLock

_WAIT = 5.0
_LOCK_FILES = (".gate", ".lock", ".run", ".merging-statistics")
"""Suffixes of files that processes lock; they hold no data."""


@contextlib.contextmanager
def own_store(path: Path) -> Iterator[Path | None]:
    """Mark the store at `path` as used by a run until the block ends; yield the new path of an earlier run's store.

    Yields None when no store was moved: at the first run, when another run uses the store (this run joins it), or
    when another process holds it.
    """
    private_files.make_folder(path.parent)
    with FileLock(_beside(path, ".run")) as lock:
        yield _first(lock, path)


def _first(lock: FileLock, path: Path) -> Path | None:
    """Move the store aside when no other run uses it; then share the lock, so that later runs join."""
    if sys.platform == "win32":
        return None
    earlier = _set_aside(path) if lock.try_acquire() else None
    lock.acquire(exclusive=False)
    return earlier


def _set_aside(path: Path) -> Path | None:
    """Move the store and its files to `<name>-earlier`, replacing those of the run before."""
    earlier = path.with_name(f"{path.stem}-earlier{path.suffix}")
    with (
        contextlib.suppress(StoreLocked),
        StoreLock(path).hold(exclusive=True, deadline=time.monotonic() + _WAIT),
    ):
        if not path.exists():
            return None
        for old in _files(earlier):
            old.unlink()
        for file in _files(path):
            file.replace(_beside(earlier, file.name.removeprefix(path.name)))
        return earlier
    return None


def _files(path: Path) -> list[Path]:
    """Return the store and its other files, such as its log and spill."""
    found = [file for file in path.parent.glob(f"{path.name}*") if file.is_file()]
    return sorted(file for file in found if not file.name.endswith(_LOCK_FILES))


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)

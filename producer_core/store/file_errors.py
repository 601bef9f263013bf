"""Translate errors from DuckDB and the operating system about the store's file to typed errors with a fix."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import duckdb

from producer_core._internal.environment_settings import STORE
from producer_core.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreTooNew,
    StoreUnavailable,
)

CHOOSE_PATH = "--store on the command line, store= in Python, or PRODUCER_CORE_STORE"
"""How a user chooses the path of a store: the same error reaches the commands and Python."""

_SIGNS_OF_DAMAGE = (
    "orrupt",
    "checksum",
    "Failure while replaying WAL",
    "deserializ",
    "Could not read enough bytes",
)
_FOREIGN_LOG = "WAL checkpoint iteration does not match"
_HOLDER = re.compile(r"\(PID (\d+)\)")


def from_duckdb(error: duckdb.Error, path: Path) -> StoreError:
    """Return the store's error for a DuckDB error; a plain StoreError for a mistake in a query."""
    text = str(error)
    if "Could not set lock" in text:
        holder = _HOLDER.search(text)
        by = f"process {holder[1]}" if holder else "another program"
        return StoreLocked(
            f"The store {path} is open in {by}.",
            fix="Close it there. A DuckDB shell, for example, locks the file.",
        )
    if "Unique file handle conflict" in text:
        return StoreError(
            f"The store {path} is already open in this process: through DuckDB itself, or because the process was forked "
            "while it used the store.",
            fix="Close that DuckDB connection. Fork outside store blocks, or use the spawn start method.",
        )
    if isinstance(error, duckdb.InterruptException):
        return StoreError("The query exceeded its time limit and was cancelled.", fix="Use a shorter range.")
    if isinstance(error, duckdb.InternalException) and not any(sign in text for sign in _SIGNS_OF_DAMAGE):
        return internal(path, text)
    return (
        _from_text(text, path)
        or _from_damage(text, path)
        or StoreError(f"The store {path} reported an error: {_first(text)}")
    )


def from_system(error: OSError, path: Path) -> StoreUnavailable:
    """Return the store's error for an error of the operating system."""
    if error.errno == errno.ENOSPC:
        return disk_full(path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return read_only(path)
    return StoreUnavailable(f"The store {path} cannot be used: {error.strerror or error}.")


def disabled() -> StoreUnavailable:
    return StoreUnavailable(
        f"{STORE}=none disables the store.",
        fix=f"Set {STORE} to the path of a store, or pass the path: --store on the command line, store= in Python.",
    )


def directory(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The store path {path} is a directory.",
        fix=f"Specify the path of a file, for example {path / 'store.duckdb'}.",
    )


def without_content(path: Path, *, was_store: bool) -> StoreUnavailable:
    """Return the error for a path with an empty file, which may have been a store, or with no file."""
    if was_store:
        return emptied(path)
    return empty(path) if path.exists() else missing(path)


def emptied(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The store {path} is empty (0 bytes): it was truncated, and all its content is lost.",
        fix="Restore it from a copy while no process is using it; otherwise the next producer creates a new one.",
    )


def empty(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The file {path} is empty (0 bytes) and is not a store.",
        fix=f"Start a producer that writes there, or specify another path: {CHOOSE_PATH}.",
    )


def missing(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"There is no store at {path}.",
        fix=f"Start a producer that writes there, or specify the path: {CHOOSE_PATH}.",
    )


def disk_full(path: Path) -> StoreFull:
    return StoreFull(
        f"The disk of the store {path} is full; committed data is safe.",
        fix=f"Free some space, or choose another path: {CHOOSE_PATH}.",
    )


def read_only(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The store {path} cannot be opened with the permissions of this user.",
        fix="Grant this user read and write permission on the file and its directory, or choose another path: "
        f"{CHOOSE_PATH}.",
    )


def incident(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"The store {path} belongs to an incident bundle and is read-only.",
        fix="Import a raw bundle into another store to replay its dead letters: producer-core incident import FILE.",
    )


def not_a_store(path: Path) -> StoreCorrupt:
    return StoreCorrupt(
        f"The file {path} is not a DuckDB file; it was not changed.",
        fix=f"Choose another path: {CHOOSE_PATH}.",
    )


def damaged(path: Path, text: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The store {path} is damaged ({_first(text)}).",
        fix="Move it aside, or restore a snapshot. The next start creates a new store.",
    )


def internal(path: Path, text: str) -> StoreError:
    return StoreError(
        f"DuckDB reported an internal error and did not finish this step on the store {path}: {_first(text)}",
        fix="Changes of this step are rolled back. Take a copy with `store snapshot`, and report the error with the version "
        "of producer-core. It is a bug in DuckDB or producer_core.",
    )


def is_foreign_log(error: duckdb.Error) -> bool:
    """Whether the write-ahead log belongs to another version of the file."""
    return _FOREIGN_LOG in str(error)


def other_log(path: Path) -> StoreCorrupt:
    return StoreCorrupt(
        f"The write-ahead log {path}.wal belongs to another version of the store {path}.",
        fix="If the store was restored from a copy, restore the copy's log too. If the copy has none, move this log aside.",
    )


def _from_text(text: str, path: Path) -> StoreError | None:
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return disk_full(path)
    if "Is a directory" in text:
        return directory(path)
    if "Permission denied" in text or "Read-only file system" in text:
        return read_only(path)
    if "database does not exist" in text or "No such file or directory" in text:
        return missing(path)
    if "version number" in text and ("newer version" in text or "can only read" in text):
        return StoreTooNew(f"The store {path} was written by a newer DuckDB.", fix="Upgrade producer-core.")
    return None


def _from_damage(text: str, path: Path) -> StoreCorrupt | None:
    if "not a valid DuckDB database" in text:
        return not_a_store(path)
    if _FOREIGN_LOG in text:
        return other_log(path)
    if any(sign in text for sign in _SIGNS_OF_DAMAGE):
        return damaged(path, text)
    return None


def _first(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else "no reason given"

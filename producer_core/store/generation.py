"""Recognize a store that was restored from a copy, by its generation number.

Each replay increments a number in the store and in a file beside it when it starts. A store restored from a copy has a
lower number than the file. A store copied to another place has no file. In both cases a replay may have written dead
letters whose verdict in the store still says that a resend is safe.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal import private_files
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.store import safe_verdicts

if TYPE_CHECKING:
    import duckdb

logger = queued_logger(__name__)

RESTORED = "The store was restored from a copy, and a replay after that copy may have written this message."


def is_restored(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether the file at `path` is older than the last replay started there, or was copied from another place."""
    number, file_number = _number(connection), _file_number(path)
    return number < file_number or (number > 0 and file_number == 0)


def revoke_safe_verdicts(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Revoke all safe verdicts, within the caller's transaction; return their number."""
    changed = safe_verdicts.revoke(connection, RESTORED)
    _write(connection, path, max(_number(connection), _file_number(path)) + 1)
    return changed


def begin_replay(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Increment the generation, within the caller's transaction; return the number of revoked safe verdicts."""
    if is_restored(connection, path):
        return revoke_safe_verdicts(connection, path)
    _write(connection, path, _number(connection) + 1)
    return 0


def inherit(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Give a new store the generation of the previous store at this path."""
    if file_number := _file_number(path):
        connection.execute("UPDATE store_generation SET number = ?", [file_number])


def _number(connection: duckdb.DuckDBPyConnection) -> int:
    row = connection.execute("SELECT max(number) FROM store_generation").fetchone()
    return int(row[0] or 0) if row else 0


def _file(path: Path) -> Path:
    return path.with_name(path.name + ".generation")


def _file_number(path: Path) -> int:
    """Return the number in the file beside the store; 0 if there is no readable file."""
    with contextlib.suppress(OSError, ValueError):
        return int(_file(path).read_text())
    return 0


def _write(connection: duckdb.DuckDBPyConnection, path: Path, number: int) -> None:
    """Write the file before the store: if the transaction then fails, verdicts are only revoked without need."""
    draft = _file(path).with_suffix(".generation.new")
    try:
        private_files.write(draft, str(number))
        draft.replace(_file(path))
    except OSError as error:
        logger.warning(**with_fields("store generation not written", path=str(_file(path)), error=str(error)))
    connection.execute("UPDATE store_generation SET number = ?", [number])

"""Recognize a store that was restored or copied, by its generation.

A generation is a random number in the store and in a file beside it. A new store gets one, and each replay writes a new one
when it starts. A store whose number is not that of the file was put there from a copy. A replay from the other store may
then have written dead letters whose verdict here still says that a resend is safe.
"""

from __future__ import annotations

import contextlib
import secrets
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
_BITS = 62
_NONE = 0


def is_restored(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether the file at `path` is not the store of the last replay there, or was copied from another place."""
    number = _number(connection)
    return number == _NONE or number != _file_number(path)


def revoke_safe_verdicts(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Revoke all safe verdicts, within the caller's transaction; return their number."""
    changed = safe_verdicts.revoke(connection, RESTORED)
    begin(connection, path)
    return changed


def begin_replay(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Begin a generation, within the caller's transaction; return the number of revoked safe verdicts."""
    if is_restored(connection, path):
        return revoke_safe_verdicts(connection, path)
    begin(connection, path)
    return 0


def begin(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Write a new number to the file, then to the store, within the caller's transaction.

    If the transaction then fails, verdicts are only revoked without need.
    """
    number = secrets.randbits(_BITS) or 1
    draft = _file(path).with_suffix(".generation.new")
    try:
        private_files.write(draft, str(number))
        draft.replace(_file(path))
    except OSError as error:
        logger.warning(**with_fields("store generation not written", path=str(_file(path)), error=str(error)))
    connection.execute("UPDATE store_generation SET number = ?", [number])


def adopt(copy: Path, source: Path) -> None:
    """Let the copy of a store count as the store itself, where only one of the two is used."""
    if _file(source).exists():
        private_files.write(_file(copy), _file(source).read_text())


def _number(connection: duckdb.DuckDBPyConnection) -> int:
    row = connection.execute("SELECT max(number) FROM store_generation").fetchone()
    return int(row[0] or _NONE) if row else _NONE


def _file(path: Path) -> Path:
    return path.with_name(path.name + ".generation")


def _file_number(path: Path) -> int:
    """Return the number in the file beside the store, or _NONE if there is no readable file."""
    with contextlib.suppress(OSError, ValueError):
        return int(_file(path).read_text())
    return _NONE

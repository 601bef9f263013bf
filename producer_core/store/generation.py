"""The generation of a store: how a store that was put back from a copy is recognised.

Every replay that begins raises a number in the store and in a file beside it. A store that was put back from a copy has a
lower number than the file. A store that was copied to another place has no file. In both cases a replay may have written
dead letters that the store still calls safe to send again.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal import private_files
from producer_core.events import SAFE_VERDICTS
from producer_core.store import dead_letter_counts

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger(__name__)

PUT_BACK = "The store was put back from a copy, and a replay after that copy may have written this message."
_PLACES = f"""
SELECT rowid FROM dead_letters
WHERE state NOT IN ('replayed', 'landed', 'purged') AND replayable AND verdict IN {SAFE_VERDICTS}"""


def is_put_back(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Return whether the file at `path` is older than the last replay that began there, or was copied from elsewhere."""
    number, known = _number(connection), _known(path)
    return number < known or (number > 0 and known == 0)


def doubt(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Take back the safe verdicts, within the caller's transaction; return how many.

    Their messages are looked for on their topics before they are sent again, as those of any ambiguous failure.
    """
    with dead_letter_counts.in_place(connection, _PLACES):
        changed = connection.execute(
            "UPDATE dead_letters SET verdict = 'possibly_persisted', verdict_reason = concat(?, ' Before: ', verdict_reason)"
            f" WHERE rowid IN ({_PLACES})",
            [PUT_BACK],
        ).fetchone()
    _write(connection, path, max(_number(connection), _known(path)) + 1)
    return int(changed[0]) if changed else 0


def begin_replay(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Raise the generation, within the caller's transaction; return how many safe verdicts had to be taken back."""
    if is_put_back(connection, path):
        return doubt(connection, path)
    _write(connection, path, _number(connection) + 1)
    return 0


def take_over(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Give a new store the number that the one before it at this place had."""
    if known := _known(path):
        connection.execute("UPDATE store_generation SET number = ?", [known])


def _number(connection: duckdb.DuckDBPyConnection) -> int:
    row = connection.execute("SELECT max(number) FROM store_generation").fetchone()
    return int(row[0] or 0) if row else 0


def _file(path: Path) -> Path:
    return path.with_name(path.name + ".generation")


def _known(path: Path) -> int:
    """What the file beside the store says; 0 where there is none, or none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        return int(_file(path).read_text())
    return 0


def _write(connection: duckdb.DuckDBPyConnection, path: Path, number: int) -> None:
    """The file first: where the transaction fails after it, the store is only doubted without need."""
    draft = _file(path).with_suffix(".generation.new")
    try:
        private_files.write(draft, str(number))
        draft.replace(_file(path))
    except OSError as error:
        logger.warning("store generation not written", extra={"path": str(_file(path)), "error": str(error)})
    connection.execute("UPDATE store_generation SET number = ?", [number])

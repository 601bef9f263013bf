"""The numbering of a producer's batches: dense, and no number twice, also where its session outlives the process."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

NAME = "batches"
"""The file in a journal's folder with the next number."""


class Numbering:
    """Numbers go on from the file in `folder`, or from what the store knows of this producer, whichever is higher.

    A new session begins at 0 and needs neither. Where neither can be asked numbers begin far above all others, which a
    reader of the ledger takes for a hole. Used by one thread.
    """

    def __init__(
        self, *, fresh: bool, folder: Path | None = None, known: Callable[[], int | None] = lambda: None
    ) -> None:
        self._path = None if folder is None else folder / NAME
        self._known = known
        self._next = 0 if fresh else None
        self._troubled = False

    def take(self) -> int:
        """The next number; it is written down before it is given."""
        number = self._first() if self._next is None else self._next
        self._next = number + 1
        if self._path is not None:
            self._write(self._path, number + 1)
        return number

    def _first(self) -> int:
        found = [number for number in (self._read(), self._known()) if number is not None]
        return max(found) if found else int(time.time() * 1000)

    def _read(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return None if self._path is None else int(self._path.read_text())
        return None

    def _write(self, path: Path, number: int) -> None:
        """Not synced: a process that is killed loses nothing, and after a power failure the store knows."""
        new = path.with_name(f"{path.name}.new")
        try:
            new.write_text(f"{number}\n")
            new.replace(path)
        except OSError as error:
            if not self._troubled:
                logger.warning("batch number not written", extra={"path": str(path), "error": str(error)})
            self._troubled = True

"""Decide where a new dead letter goes: into the store, into the spill file, or into memory.

A dead letter goes to the store; while the store is unavailable, to the spill file beside it (`spill_file.py`); and if that
file cannot be written either, it stays in memory. With `limit` dead letters in memory the writer is `full`: `send_message`
then blocks and raises. The next write to the store also adds the content of the spill file and deletes the file; until that
succeeds, the recorder calls `flush` once a second. `close` writes to the spill file first, because that file never waits
for the store, and then to the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import StoreError
from producer_core.events import DeadLetter
from producer_core.metrics.store_access import RecorderDestination, StoreAccess

logger = queued_logger(__name__)


class SpillFile(Protocol):
    """Keeps dead letters while the store is not available."""

    def append(self, dead_letters: Sequence[DeadLetter]) -> None: ...
    def taking(self) -> AbstractContextManager[Sequence[DeadLetter]]: ...


class DeadLetterWriter:
    """Writes dead letters on the recorder's thread, which alone calls `flush` and `close`. Any thread calls the rest.

    `stored` is called with the ids of dead letters that are on disk: in the store or in the spill file. A producer with
    `store=None` has no writer; it keeps its dead letters in `memory_queue.py:DeadLetterQueue`.
    """

    def __init__(
        self,
        store: StoreAccess,
        spill: SpillFile,
        *,
        limit: int = 10_000,
        stored: Callable[[Iterable[str]], None] = lambda message_ids: None,
    ) -> None:
        self._store = store
        self._spill = spill
        self._limit = limit
        self._stored = stored
        self._lock = threading.Lock()  # guards the two fields below
        self._dead_letters: list[DeadLetter] = []
        self._writing = 0
        self._written = threading.Event()
        self.trouble = ""  # the error of the spill file while dead letters are in memory only
        self.spilled = True  # whether a spill file may exist; an earlier process may have left one

    def add(self, dead_letter: DeadLetter) -> None:
        """Keep the dead letter in memory until the next `flush`. Never blocks."""
        with self._lock:
            self._dead_letters.append(dead_letter)

    @property
    def full(self) -> bool:
        """Whether there is no room for another dead letter: store and spill file take none, and the buffer is full."""
        return self._store.trouble is not None and len(self._dead_letters) >= self._limit

    @property
    def waiting(self) -> int:
        """The number of dead letters that are in memory only."""
        return len(self._dead_letters) + self._writing

    def flush(self) -> None:
        """Write all dead letters to the store, or to the spill file while the store is unavailable."""
        dead_letters = self._take()
        if not self._store.use(
            lambda destination: self._write(destination, dead_letters), part="dead letters"
        ):
            self._spill_or_keep(dead_letters)
        self._writing = 0
        self._written.set()

    def close(self) -> None:
        """Write all dead letters to the spill file, because it never waits for the store. Then write all to the store."""
        self._spill_or_keep(self._take())
        self._writing = 0
        self.flush()

    def take_unwritten(self) -> list[DeadLetter]:
        """Return the dead letters that neither the store nor the spill file took, and forget them. Call after `close`."""
        with self._lock:
            dead_letters, self._dead_letters = self._dead_letters, []
        return dead_letters

    def wait_written(self, timeout: float) -> bool:
        """Wait until all dead letters are in the store or the spill file; return False on a timeout or without a store."""
        deadline = time.monotonic() + timeout
        while self.waiting and self._store.trouble is None and time.monotonic() < deadline:
            self._written.clear()
            if self.waiting:
                self._written.wait(0.05)
        return not self.waiting

    def wait_stored(self, timeout: float) -> bool:
        """Wait until all dead letters are in the store, even while it is not available; return False on a timeout."""
        deadline = time.monotonic() + timeout
        while (self.waiting or self.spilled) and (left := deadline - time.monotonic()) > 0:
            self._written.clear()
            if self.waiting or self.spilled:
                self._written.wait(min(left, 0.05))
        return not (self.waiting or self.spilled)

    def _take(self) -> list[DeadLetter]:
        with self._lock:
            dead_letters, self._dead_letters = self._dead_letters, []
            self._writing = len(dead_letters)
        return dead_letters

    def _write(self, destination: RecorderDestination, dead_letters: list[DeadLetter]) -> None:
        if dead_letters:
            destination.dead_letters.add(dead_letters)
            self._stored([dead_letter.message_id for dead_letter in dead_letters])
            dead_letters.clear()
            self.trouble = ""
        if self.spilled:
            with self._spill.taking() as spilled:
                destination.dead_letters.add(spilled)
            self.spilled = False

    def _spill_or_keep(self, dead_letters: list[DeadLetter]) -> None:
        """Append the dead letters to the spill file; put them back into memory if that fails."""
        if not dead_letters:
            return
        try:
            self._spill.append(dead_letters)
            self.spilled = True
            self._stored([dead_letter.message_id for dead_letter in dead_letters])
            self.trouble = ""
        except StoreError as error:
            self._log_trouble(str(error), len(dead_letters))
            with self._lock:
                self._dead_letters[:0] = dead_letters

    def _log_trouble(self, error: str, count: int) -> None:
        """Log an error of the spill file once, until dead letters are on disk again."""
        if error != self.trouble:
            logger.error(**with_fields("dead letters cannot be spilled", count=count, error=error))
        self.trouble = error

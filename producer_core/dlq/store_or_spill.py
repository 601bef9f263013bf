"""Decide where a new dead letter goes: into the store, into the spill file, or into memory.

A dead letter goes to the store; while the store is unavailable, to the spill file beside it (`spill_file.py`); and if that
file cannot be written either, it stays in memory. With `limit` dead letters in memory the writer is `full`: `send_message`
then blocks and raises. The next write to the store also adds the content of the spill file and deletes the file; until that
succeeds, the recorder calls `flush` once a second. `close` writes to the spill file first, because that file never waits
for the store, and then to the store.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.dlq.published_verdict import without_safe_verdict
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

    `stored` is called with the ids of dead letters that are on disk: in the store or in the spill file. `unpublished` is
    called before with those of them that are not on a dead-letter topic, unless an earlier process spilled them. `unstored` is
    called with those that the store does not take now, to publish them from memory; it returns them as they are to be
    kept. `dropped` is called with the ids of published ones that made room and are in memory no more. `named` returns
    dead letters of the spill file, whose lines have no application, with those of their producers if they are known. A
    producer with `store=None` has no writer; it keeps its dead letters in `memory_queue.py:DeadLetterQueue`.
    """

    def __init__(
        self,
        store: StoreAccess,
        spill: SpillFile,
        *,
        limit: int = 10_000,
        stored: Callable[[Iterable[str]], None] = lambda message_ids: None,
        unpublished: Callable[[Sequence[DeadLetter]], None] = lambda dead_letters: None,
        unstored: Callable[[Sequence[DeadLetter]], Sequence[DeadLetter]] | None = None,
        dropped: Callable[[Iterable[str]], None] = lambda message_ids: None,
        named: Callable[[Sequence[DeadLetter]], Sequence[DeadLetter]] = lambda dead_letters: dead_letters,
    ) -> None:
        self._store = store
        self._spill = spill
        self._limit = limit
        self._stored = stored
        self._unpublished = unpublished
        self._unstored = unstored
        self._dropped = dropped
        self._named = named
        self._lock = threading.Lock()  # guards the four fields below
        self._dead_letters: list[DeadLetter] = []
        self._writing = 0
        self._taken: frozenset[str] = frozenset()  # the ids of those being written
        self._published: set[str] = set()  # those in memory that are on their dead-letter topic
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
        waiting = len(self._dead_letters)
        return self._store.trouble is not None and waiting - len(self._published) >= self._limit

    @property
    def lost(self) -> int:
        """The number of dead letters that are in memory only, and not on a dead-letter topic either."""
        return self.waiting - len(self._published)

    def published(self, message_ids: Iterable[str]) -> None:
        """Tell that these dead letters are on their dead-letter topic: they no longer need room in memory.

        They stay for the store as long as there is room.
        """
        with self._lock:
            in_memory = self._taken | {one.message_id for one in self._dead_letters}
            self._published |= in_memory & {*message_ids}
            self._drop_published()

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
            self._spill_or_keep(self._publish(dead_letters))
        self._writing = 0
        self._written.set()

    def close(self) -> None:
        """Write all dead letters to the spill file, because it never waits for the store. Then write all to the store."""
        dead_letters = self._take()
        available = self._store.trouble is None
        spilled = self._spill_or_keep(dead_letters if available else self._publish(dead_letters))
        self._writing = 0
        self.flush()
        if spilled and available and self._store.trouble is not None:
            self._publish_spilled(dead_letters)

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
            self._taken = frozenset(one.message_id for one in dead_letters)
        return dead_letters

    def _publish(self, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
        """Publish from memory what is not published yet. Return the dead letters as they are to be kept."""
        with self._lock:
            unpublished = [one for one in dead_letters if one.message_id not in self._published]
        if self._unstored is None or not unpublished:
            return dead_letters
        changed = {one.message_id: one for one in self._unstored(unpublished)}
        return [changed.get(one.message_id, one) for one in dead_letters]

    def _publish_spilled(self, dead_letters: list[DeadLetter]) -> None:
        """Publish dead letters that are in the spill file, because the store failed afterwards.

        First, without a safe verdict, they are spilled again. If that fails, the next producer publishes them.
        """
        if self._unstored is None:
            return
        changed = [new for old in dead_letters if (new := without_safe_verdict(old)) != old]
        with contextlib.suppress(StoreError):
            self._spill.append(changed)
            self._publish(dead_letters)

    def _drop_published(self) -> None:
        """Drop the oldest published dead letters that exceed the limit. Called with the lock held."""
        excess = len(self._dead_letters) - self._limit
        dropped = [one.message_id for one in self._dead_letters if one.message_id in self._published][
            : max(0, excess)
        ]
        if dropped:
            self._published.difference_update(dropped)
            gone = set(dropped)
            self._dead_letters = [one for one in self._dead_letters if one.message_id not in gone]
            self._dropped(dropped)

    def _write(self, destination: RecorderDestination, dead_letters: list[DeadLetter]) -> None:
        if dead_letters:
            destination.dead_letters.add(dead_letters)
            self._on_disk(dead_letters)
            dead_letters.clear()
        if self.spilled:
            with self._spill.taking() as spilled:
                destination.dead_letters.add(self._named(_latest(spilled)))
            self.spilled = False
            self._stored([dead_letter.message_id for dead_letter in spilled])

    def _spill_or_keep(self, dead_letters: list[DeadLetter]) -> bool:
        """Append the dead letters to the spill file. If that fails, put them back into memory and return False."""
        if not dead_letters:
            return True
        try:
            self._spill.append(dead_letters)
            self.spilled = True
            self._on_disk(dead_letters)
        except StoreError as error:
            self._log_trouble(str(error), len(dead_letters))
            with self._lock:
                self._dead_letters[:0] = dead_letters
                self._taken = frozenset()
                self._drop_published()
            return False
        return True

    def _on_disk(self, dead_letters: Sequence[DeadLetter]) -> None:
        message_ids = [dead_letter.message_id for dead_letter in dead_letters]
        with self._lock:
            self._unpublished([one for one in dead_letters if one.message_id not in self._published])
            self._published.difference_update(message_ids)
            self._taken = frozenset()
        self._stored(message_ids)
        self.trouble = ""

    def _log_trouble(self, error: str, count: int) -> None:
        """Log an error of the spill file once, until dead letters are on disk again."""
        if error != self.trouble:
            logger.error(**with_fields("dead letters cannot be spilled", count=count, error=error))
        self.trouble = error


def _latest(spilled: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Return the dead letters, and of one that was spilled again with a changed verdict only the later."""
    return list({(one.message_id, one.failed_at): one for one in spilled}.values())

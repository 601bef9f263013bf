"""Open the store on the recorder's thread, and report when it becomes unavailable and available again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from producer_core.errors import StoreError
from producer_core.events import DeadLetter, Notice
from producer_core.metrics.batch import Batch

logger = logging.getLogger(__name__)


class DeadLetterSink(Protocol):
    """Stores dead letters permanently."""

    def add(self, dead_letters: Sequence[DeadLetter]) -> None: ...


class BatchStore(Protocol):
    """Stores batches."""

    def append(self, *batches: Batch) -> int: ...
    def recently_read(self) -> bool: ...
    def rollup(self, now: float) -> int: ...
    def prune(self, now: float) -> int: ...


@dataclass(frozen=True)
class RecorderDestination:
    """The parts of an open store that the recorder writes to."""

    batches: BatchStore
    dead_letters: DeadLetterSink


class StoreAccess:
    """The recorder's way to the store. Only the recorder's thread calls `use`; any thread may read `trouble`.

    `notice` receives one notice when the store becomes unavailable, and one when it is available again.
    """

    def __init__(
        self,
        open_store: Callable[[], RecorderDestination],
        *,
        notice: Callable[[Notice], None],
        clock: Callable[[], float],
    ) -> None:
        self._open = open_store
        self._notice = notice
        self._clock = clock
        self._destination: RecorderDestination | None = None
        self.trouble: str | None = None  # the error of the store while it is not available

    def use(self, work: Callable[[RecorderDestination], None]) -> bool:
        """Do the work with the open store; return False if the store is not available."""
        try:
            self._destination = self._destination or self._open()
            work(self._destination)
        except StoreError as error:
            self._failed(error)
            return False
        self._recovered()
        return True

    def _failed(self, error: StoreError) -> None:
        if self.trouble is None:
            logger.warning("store unavailable", extra={"error": str(error)})
            self._notice(Notice("store_unavailable", "critical", str(error), self._clock()))
        self.trouble = str(error)

    def _recovered(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            logger.warning("store available again")
            self._notice(Notice("store_available", "info", "The store is available again.", self._clock()))

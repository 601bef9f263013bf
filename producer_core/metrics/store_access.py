"""Open the store on the recorder's thread, and report when it becomes unavailable and available again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import StoreError
from producer_core.events import DeadLetter, Notice
from producer_core.metrics.batch import Batch

logger = queued_logger(__name__)


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

    `notice` receives one notice when the store becomes unavailable, and one when it is available again: when each part of
    the work that failed has succeeded. In a damaged file, some tables can be used and others cannot.
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
        self._failing: set[Hashable] = set()  # the parts of the work whose last attempt failed
        self.trouble: str | None = None  # the error of the store while it is not available

    def trouble_of(self, part: Hashable) -> str | None:
        """Return the error of the store if the latest attempt of this part of the work failed."""
        return self.trouble if part in self._failing else None

    def use(self, work: Callable[[RecorderDestination], None], *, part: Hashable = "") -> bool:
        """Do a part of the work with the open store; return False if the store is not available."""
        try:
            self._destination = self._destination or self._open()
            work(self._destination)
        except StoreError as error:
            self._failed(error, part)
            return False
        self._succeeded(part)
        return True

    def _failed(self, error: StoreError, part: Hashable) -> None:
        self._failing.add(part)
        if self.trouble is None:
            logger.warning(**with_fields("store unavailable", error=str(error)), group=id(self))
            self._notice(Notice("store_unavailable", "critical", str(error), self._clock()))
        self.trouble = str(error)

    def _succeeded(self, part: Hashable) -> None:
        self._failing.discard(part)
        if self.trouble is not None and not self._failing:
            self.trouble = None
            logger.warning("store available again", group=id(self))
            self._notice(Notice("store_available", "info", "The store is available again.", self._clock()))

"""The recorder: a hook that writes statistics, dead letters, alerts and the ledger to the store, off the poll thread.

Statistics are taken once a second as the difference of two snapshots, so nothing is counted twice and nothing is
lost when a flush fails: batches wait, and when too many wait the oldest two are added up. They are written each second
while somebody looks or something is to be told, else four at once. Dead letters go out within 100 ms; when the
store cannot be had they are spilled to a file beside it, which the next flush takes in.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from producer_core._internal import time_budget
from producer_core._internal.read_activity import mark_background_thread
from producer_core.errors import StoreError
from producer_core.events import Acknowledged, DeadLetter, Hook, Notice
from producer_core.metrics.batch import Batch
from producer_core.metrics.batch_size import added_up
from producer_core.metrics.stats_window import StatsWindow

logger = logging.getLogger(__name__)

_TICK = 1.0
_UNSEEN = 4
"""Batches that are written together when nobody looks: borrowing the store costs 15 ms, whatever is written."""
_AT_ONCE = 60
"""Batches that are merged in one transaction."""
_GATHER = 0.05
"""Seconds a dead letter waits for company before it is written."""
_WAITING_BATCHES = 300
_WAITING_LEDGER = 4_000_000
"""Acknowledgements whose ledger rows may wait for the store: 64 MB or so."""
_MAINTENANCE = 60.0
_FOR_A_DISK = 15.0
"""Seconds beyond its bound for which a close waits until dead letters are on a disk: another process may have the
spill file."""


class DeadLetterSink(Protocol):
    """Where dead letters are kept for good."""

    def add(self, dead_letters: Sequence[DeadLetter]) -> None: ...


class SpillFile(Protocol):
    """Where dead letters wait while the store cannot be had."""

    def append(self, dead_letters: Sequence[DeadLetter]) -> None: ...
    def taking(self) -> AbstractContextManager[Sequence[DeadLetter]]: ...


class BatchStore(Protocol):
    """Where batches go: the store."""

    def append(self, *batches: Batch) -> int: ...
    def recently_read(self) -> bool: ...
    def rollup(self, now: float) -> int: ...
    def prune(self, now: float) -> int: ...


class BatchPublisher(Protocol):
    """Where batches also go: a telemetry topic."""

    def publish(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class RecorderDestination:
    """An opened store, as the recorder needs it."""

    batches: BatchStore
    dead_letters: DeadLetterSink


class Recorder(Hook):
    """Owns one thread. `died` and `notice` may be called from any thread and never block."""

    def __init__(
        self,
        open_store: Callable[[], RecorderDestination],
        spill: SpillFile,
        window: StatsWindow,
        *,
        each_second: Sequence[Callable[[RecorderDestination], None]] = (),
        telemetry: BatchPublisher | None = None,
        keep_ledger: bool = False,
        buffer_limit: int = 10_000,
        dead_letters_stored: Callable[[Iterable[str]], None] = lambda message_ids: None,
    ) -> None:
        self._open = open_store
        self._spill = spill
        self._window = window
        self._each_second = tuple(each_second)
        self._telemetry = telemetry
        self._ledger = window.ledger
        self._client = window.client
        self._keep_ledger = keep_ledger
        self._limit = buffer_limit
        self._dead_letters_stored = dead_letters_stored
        self._clock = window.clock
        self._lock = threading.Lock()  # guards the four fields below
        self._dead_letters: list[DeadLetter] = []
        self._notices: list[Notice] = []
        self._writing = 0
        self._hurries: list[threading.Event] = []  # each is set when what was there at its time is written
        self._written = threading.Event()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._destination: RecorderDestination | None = None
        self._spilled = True  # what an earlier process left is taken in as well
        self._batches: deque[Batch] = deque()
        self._maintained = 0.0
        self._said: tuple[object, ...] = ()
        self._patience = time_budget.TimeBudget()
        self.trouble: str | None = None
        self.ledger_lost = 0  # acknowledgements whose rows had no room while the store could not be had
        self._thread = threading.Thread(target=self._run, name="producer-core-recorder", daemon=True)

    # the hook

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        if self._ledger is not None:
            self._ledger.acknowledged(batch)

    def died(self, dead_letter: DeadLetter) -> None:
        if self._ledger is not None:
            self._ledger.died(dead_letter)
        with self._lock:
            self._dead_letters.append(dead_letter)
        self._wake.set()

    def notice(self, notice: Notice) -> None:
        with self._lock:
            self._notices.append(notice)

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        self._client.add(statistics, self._clock())

    @property
    def full(self) -> bool:
        """No place is left for another dead letter: neither store nor spill takes them, and the buffer is full."""
        return self.trouble is not None and len(self._dead_letters) >= self._limit

    @property
    def waiting(self) -> int:
        """Dead letters that are in memory only."""
        return len(self._dead_letters) + self._writing

    unwritten = waiting

    def wait_written(self, timeout: float) -> bool:
        """Until what died so far is in the store or the spill file; False when the timeout ran out."""
        deadline = time.monotonic() + timeout
        while self.waiting and self.trouble is None and time.monotonic() < deadline:
            self._written.clear()
            if self.waiting:
                self._written.wait(0.05)
        return not self.waiting

    def wait_stored(self, timeout: float) -> bool:
        """Wait until every dead letter so far is in the store itself, also through trouble with it; False at the timeout."""
        deadline = time.monotonic() + timeout
        while (self.waiting or self._spilled) and (left := deadline - time.monotonic()) > 0:
            self._written.clear()
            if self.waiting or self._spilled:
                self._written.wait(min(left, 0.05))
        return not (self.waiting or self._spilled)

    def flush_soon(self, timeout: float) -> None:
        """Write down now what would be written within the next second; wait for it at most `timeout` seconds."""
        told = threading.Event()
        with self._lock:
            self._hurries.append(told)
        self._wake.set()
        told.wait(timeout)

    # the thread

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Write what is there and end; what cannot be written is spilled, what cannot be spilled is logged.

        The store is waited for until the timeout. A dead letter is on a disk before that, whatever it takes.
        """
        self._patience.end_in(timeout)
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)
        if self.waiting:
            self._thread.join(_FOR_A_DISK)
        if self.waiting:
            logger.critical("dead letters could not be kept anywhere", extra={"count": self.waiting})
        if self._telemetry is not None:
            self._telemetry.close()

    def _run(self) -> None:
        mark_background_thread()
        time_budget.share(self._patience)
        next_tick = time.monotonic() + _TICK
        while not self._stopping.is_set():
            self._wake.wait(max(0.0, next_tick - time.monotonic()))
            if self._wake.is_set() and not self._stopping.wait(_GATHER):
                self._wake.clear()
            if self._dead_letters and not self._stopping.is_set():
                self._flush_dead_letters()
            with self._lock:
                hurries, self._hurries = self._hurries, []
            if time.monotonic() >= next_tick or hurries:
                next_tick = max(next_tick + _TICK, time.monotonic())
                self._tick(write=bool(hurries))
                for told in hurries:
                    told.set()
        self._end()

    def _end(self) -> None:
        """Dead letters go to the spill first: it waits for nobody. The store takes them in if it can be had."""
        with self._lock:
            dead_letters, self._dead_letters = self._dead_letters, []
            self._writing = len(dead_letters)
        self._put_aside(dead_letters)
        self._writing = 0
        self._flush_dead_letters()
        self._tick(write=True)

    def _tick(self, *, write: bool) -> None:
        write = write or self.trouble is not None or len(self._batches) >= _UNSEEN - 1
        with self._lock:
            notices, self._notices = tuple(self._notices), []
        for batch in self._window.take(notices):
            self._batches.append(batch if self._keep_ledger else batch.without_ledger())
            write |= self._tells(self._batches[-1])
            if self._telemetry is not None:
                self._telemetry.publish(batch)
        self._shorten()
        if self._spilled:
            self._flush_dead_letters()
        self._with_store(lambda destination: self._flush_batches(destination, write))
        for step in self._each_second:
            self._with_store(step)

    # dead letters

    def _flush_dead_letters(self) -> None:
        with self._lock:
            dead_letters, self._dead_letters = self._dead_letters, []
            self._writing = len(dead_letters)
        if not self._with_store(lambda destination: self._write(destination, dead_letters)):
            self._put_aside(dead_letters)
        self._writing = 0
        self._written.set()

    def _write(self, destination: RecorderDestination, dead_letters: list[DeadLetter]) -> None:
        if dead_letters:
            destination.dead_letters.add(dead_letters)
            self._dead_letters_stored([dead_letter.message_id for dead_letter in dead_letters])
            dead_letters.clear()
        if self._spilled:
            with self._spill.taking() as earlier:
                destination.dead_letters.add(earlier)
            self._spilled = False

    def _put_aside(self, dead_letters: list[DeadLetter]) -> None:
        if not dead_letters:
            return
        try:
            self._spill.append(dead_letters)
            self._spilled = True
            self._dead_letters_stored([dead_letter.message_id for dead_letter in dead_letters])
        except StoreError as error:
            logger.error(
                "dead letters cannot be spilled", extra={"count": len(dead_letters), "error": str(error)}
            )
            with self._lock:
                self._dead_letters[:0] = dead_letters

    # statistics

    def _tells(self, batch: Batch) -> bool:
        """Whether it holds what nobody should hear of later, or what a kill must not take along."""
        row = batch.producer
        said = () if row is None else (row.cluster_id, row.connected, row.closed_at)
        news, self._said = said != self._said, said
        return bool(news or batch.errors or batch.notices or batch.ledger or batch.given_up)

    def _flush_batches(self, destination: RecorderDestination, write: bool) -> None:
        if not write and not destination.batches.recently_read():
            return
        while some := tuple(itertools.islice(self._batches, _AT_ONCE)):
            destination.batches.append(*some)
            for _ in some:
                self._batches.popleft()
        if time.monotonic() - self._maintained > _MAINTENANCE:
            self._maintained = time.monotonic()
            destination.batches.rollup(self._clock())
            destination.batches.prune(self._clock())

    def _shorten(self) -> None:
        """Beyond the bound the two oldest batches become one: their windows are kept, only memory is saved."""
        if len(self._batches) > _WAITING_BATCHES:
            first, second = self._batches.popleft(), self._batches.popleft()
            self._batches.appendleft(added_up(first, second))
        if self._keep_ledger:
            self._rob()

    def _rob(self) -> None:
        """Beyond the bound the oldest rows of the ledger go, an eighth at once so that it is seldom told, and are counted."""
        over = sum(batch.acknowledgements for batch in self._batches) - _WAITING_LEDGER
        if over <= 0:
            return
        least = self.ledger_lost + over + _WAITING_LEDGER // 8
        for place, batch in enumerate(self._batches):
            if batch.ledger and self.ledger_lost < least:
                self._batches[place] = left = batch.robbed(least - self.ledger_lost)
                self.ledger_lost += batch.acknowledgements - left.acknowledgements

    # the store

    def _with_store(self, work: Callable[[RecorderDestination], None]) -> bool:
        try:
            self._destination = self._destination or self._open()
            work(self._destination)
        except StoreError as error:
            self._troubled(error)
            return False
        self._recovered()
        return True

    def _troubled(self, error: StoreError) -> None:
        if self.trouble is None:
            logger.warning("store unavailable", extra={"error": str(error)})
            self.notice(Notice("store_unavailable", "critical", str(error), self._clock()))
        self.trouble = str(error)

    def _recovered(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            logger.warning("store available again")
            self.notice(Notice("store_available", "info", "The store can be written again.", self._clock()))

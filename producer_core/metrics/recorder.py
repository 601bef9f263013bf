"""Write statistics, alerts and the ledger to the store on a background thread, and flush dead letters there.

Statistics are taken once a second as the difference of two snapshots, so that nothing is counted twice, and nothing is lost
when a flush fails: the batches wait, and beyond a limit the two oldest are summed. They are written each second while a
dashboard or a command reads the store or when a batch contains news, and otherwise four at a time, or eight at a time
when the producer is idle. The eight are then written as one, with librdkafka's statistics summed by minute.

The thread also flushes dead letters within 100 ms; `dlq/store_or_spill.py` decides where they go.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from producer_core._internal import time_budget
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import mark_background_thread
from producer_core.events import Acknowledged, DeadLetter, Hook, Notice
from producer_core.metrics.batch import Batch
from producer_core.metrics.batch_size import sum_by_minute
from producer_core.metrics.heartbeat import IDLE_INTERVAL
from producer_core.metrics.stats_window import StatsWindow
from producer_core.metrics.store_access import RecorderDestination, StoreAccess

logger = queued_logger(__name__)

_TICK = 1.0
_UNREAD_BATCHES = 4
"""Batches that are written together while the store is not read: opening it costs 15 ms, however much is written."""
_UNREAD_HEARTBEATS = round(IDLE_INTERVAL / _TICK)
"""Batches without any count that are written together: readers expect a heartbeat within `ALIVE`."""
_TRANSACTION_BATCHES = 60
"""Batches that are merged in one transaction."""
_COLLECT_S = 0.05
"""Seconds that a dead letter waits for others before it is written."""
_MAX_BATCHES = 300
"""Batches that may wait for the store."""
_MAX_LEDGER = 4_000_000
"""Acknowledgements whose ledger rows may wait for the store: about 64 MB."""
_MAINTENANCE_INTERVAL = 60.0
_SPILL_TIMEOUT = 15.0
"""Seconds that stop() waits beyond its timeout for dead letters to be on disk: another process may hold the spill file."""

_TIMED_OUT = "The store and the spill file did not respond in time."


class BatchPublisher(Protocol):
    """Publishes batches to a telemetry topic."""

    def publish(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


class WritesDeadLetters(Protocol):
    """Writes dead letters to disk; see `dlq/store_or_spill.py:DeadLetterWriter`."""

    @property
    def waiting(self) -> int: ...
    @property
    def spilled(self) -> bool: ...
    @property
    def trouble(self) -> str: ...
    def add(self, dead_letter: DeadLetter) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Recorder(Hook):
    """Writes on one thread of its own. `died` and `notice` may be called on any thread and never block."""

    def __init__(
        self,
        store: StoreAccess,
        dead_letters: WritesDeadLetters,
        window: StatsWindow,
        *,
        each_second: Sequence[Callable[[RecorderDestination], None]] = (),
        telemetry: BatchPublisher | None = None,
        keep_ledger: bool = False,
    ) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._window = window
        self._each_second = tuple(each_second)
        self._telemetry = telemetry
        self._ledger = window.ledger
        self._client = window.client
        self._keep_ledger = keep_ledger
        self._clock = window.clock
        self._lock = threading.Lock()  # guards the two fields below
        self._notices: list[Notice] = []
        self._flushes: list[threading.Event] = []  # each is set after the next complete write
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._batches: deque[Batch] = deque()
        self._maintained_at = 0.0
        self._last_state: tuple[object, ...] = ()
        self._time_budget = time_budget.TimeBudget()
        self.ledger_lost = 0  # acknowledgements whose rows had no room while the store was not available
        self._thread = threading.Thread(target=self._run, name="producer-core-recorder", daemon=True)

    # the hook

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        if self._ledger is not None:
            self._ledger.acknowledged(batch)

    def died(self, dead_letter: DeadLetter) -> None:
        if self._ledger is not None:
            self._ledger.died(dead_letter)
        self._dead_letters.add(dead_letter)
        if not self._wake.is_set():  # for speed; the thread clears it before it takes the dead letters
            self._wake.set()

    def notice(self, notice: Notice) -> None:
        with self._lock:
            self._notices.append(notice)

    def client_statistics(self, statistics: Mapping[str, Any]) -> None:
        self._client.add(statistics, self._clock())

    def flush_soon(self, timeout: float) -> None:
        """Write now what would be written within the next second, and wait for that for at most `timeout` seconds."""
        flushed = threading.Event()
        with self._lock:
            self._flushes.append(flushed)
        self._wake.set()
        flushed.wait(timeout)

    # the thread

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Write everything and stop. Dead letters that cannot be written are spilled; if that fails too, this is logged.

        Waits for the store until the timeout, and for dead letters on disk for another `_SPILL_TIMEOUT` seconds.
        """
        self._time_budget.end_in(timeout)
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)
        if self._dead_letters.waiting:
            self._thread.join(_SPILL_TIMEOUT)
        if self._dead_letters.waiting:
            self._log_lost()
        if self._telemetry is not None:
            self._telemetry.close()

    def _log_lost(self) -> None:
        logger.critical(
            **with_fields(
                "dead letters could not be stored",
                count=self._dead_letters.waiting,
                error=self._dead_letters.trouble or self._store.trouble or _TIMED_OUT,
            )
        )

    def _run(self) -> None:
        mark_background_thread()
        time_budget.share(self._time_budget)
        next_tick = time.monotonic() + _TICK
        while not self._stopping.is_set():
            self._wake.wait(max(0.0, next_tick - time.monotonic()))
            if self._wake.is_set() and not self._stopping.wait(_COLLECT_S):
                self._wake.clear()
            if self._dead_letters.waiting and not self._stopping.is_set():
                self._dead_letters.flush()
            with self._lock:
                flushes, self._flushes = self._flushes, []
            if time.monotonic() >= next_tick or flushes:
                next_tick = max(next_tick + _TICK, time.monotonic())
                self._tick(write=bool(flushes))
                for flushed in flushes:
                    flushed.set()
        self._dead_letters.close()
        self._tick(write=True)

    def _tick(self, *, write: bool) -> None:
        write = write or self._store.trouble is not None
        with self._lock:
            notices, self._notices = tuple(self._notices), []
        for batch in self._window.take(notices):
            self._batches.append(batch if self._keep_ledger else batch.without_ledger())
            write |= self._has_news(self._batches[-1])
            if self._telemetry is not None:
                self._telemetry.publish(batch)
        write |= self._are_enough()
        self._limit_batches()
        if self._dead_letters.spilled:
            self._dead_letters.flush()
        self._store.use(lambda destination: self._flush_batches(destination, write), part="statistics")
        for step in self._each_second:
            self._store.use(step, part=step)

    # statistics

    def _has_news(self, batch: Batch) -> bool:
        """Return whether a batch must be written now: it shows a change or an error, or a kill must not lose it."""
        row = batch.producer
        state = () if row is None else (row.cluster_id, row.connected, row.closed_at)
        changed, self._last_state = state != self._last_state, state
        return bool(changed or batch.errors or batch.notices or batch.ledger or batch.given_up)

    def _are_enough(self) -> bool:
        """Return whether the waiting batches are worth a transaction."""
        idle = not any(batch.statistics or batch.latencies for batch in self._batches)
        return len(self._batches) >= (_UNREAD_HEARTBEATS if idle else _UNREAD_BATCHES)

    def _flush_batches(self, destination: RecorderDestination, write: bool) -> None:
        if not write and not destination.batches.recently_read():
            return
        while batches := tuple(itertools.islice(self._batches, _TRANSACTION_BATCHES)):
            destination.batches.append(*_reduced(batches, unread=not destination.batches.recently_read()))
            for _ in batches:
                self._batches.popleft()
        if time.monotonic() - self._maintained_at > _MAINTENANCE_INTERVAL:
            self._maintained_at = time.monotonic()
            destination.batches.rollup(self._clock())
            destination.batches.prune(self._clock())

    def _limit_batches(self) -> None:
        """Sum the two oldest batches beyond the limit. Their counts are kept; only their resolution is reduced."""
        if len(self._batches) > _MAX_BATCHES:
            first, second = self._batches.popleft(), self._batches.popleft()
            self._batches.appendleft(sum_by_minute(first, second))
        if self._keep_ledger:
            self._limit_ledger()

    def _limit_ledger(self) -> None:
        """Drop and count the oldest ledger rows beyond the limit, an eighth of it at once to keep the notices few."""
        excess = sum(batch.acknowledgements for batch in self._batches) - _MAX_LEDGER
        if excess <= 0:
            return
        target = self.ledger_lost + excess + _MAX_LEDGER // 8
        for index, batch in enumerate(self._batches):
            if batch.ledger and self.ledger_lost < target:
                self._batches[index] = rest = batch.drop_ledger_rows(target - self.ledger_lost)
                self.ledger_lost += batch.acknowledgements - rest.acknowledgements


def _reduced(batches: Sequence[Batch], *, unread: bool) -> Sequence[Batch]:
    """Return one batch for heartbeats that are written together while the store is not read, or else all batches."""
    if unread and len(batches) > 1 and all(batch.is_heartbeat for batch in batches):
        return (functools.reduce(sum_by_minute, batches),)
    return batches

"""Write statistics, alerts and the ledger to the store on a background thread, and flush dead letters there.

Statistics are taken once a second as the difference of two snapshots, so that nothing is counted twice, and nothing is lost
when a flush fails: the batches wait, and beyond a limit the two oldest are summed. They are written each second while a
dashboard or a command reads the store or when a batch contains news, and otherwise four at a time, or eight at a time
when the producer is idle. The eight are then written as one, with librdkafka's statistics summed by minute. Until they are
in the store, they are also in a file beside it (`statistics_log.py`), so that `kill -9` loses one second of counts. While the
thread waits for the store, it continues to collect statistics once a second.

The thread also flushes dead letters within 100 ms; `dlq/store_or_spill.py` decides where they go.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from producer_core._internal import time_budget
from producer_core._internal.deadline import Deadline
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import mark_background_thread
from producer_core.events import Acknowledged, DeadLetter, Hook, Notice
from producer_core.metrics.batch import Batch
from producer_core.metrics.batch_queue import BatchQueue
from producer_core.metrics.heartbeat import IDLE_INTERVAL
from producer_core.metrics.stats_window import StatsWindow
from producer_core.metrics.store_access import RecorderDestination, StoreAccess

logger = queued_logger(__name__)

_TICK = 1.0
_UNREAD_BATCHES = 4
"""Batches that are written together while the store is not read: opening it costs 15 ms, however much is written."""
_UNREAD_HEARTBEATS = round(IDLE_INTERVAL / _TICK)
"""Batches without any count that are written together: readers expect a heartbeat within `ALIVE`."""
_COLLECT_S = 0.05
"""Seconds that a dead letter waits for others before it is written."""
_MAINTENANCE_INTERVAL = 60.0
_SPILL_TIMEOUT = 15.0
"""Seconds that stop() waits beyond its timeout for dead letters to be on disk: another process may hold the spill file."""

_LAST_STEP_S = 0.5
"""Seconds of a stop in which the thread no longer waits for the store, but writes to files and ends."""

_TELEMETRY_AT_LEAST = 0.2
"""Seconds that a stop gives to the telemetry publisher after its timeout."""

_TIMED_OUT = "The store and the spill file did not respond in time."


class BatchPublisher(Protocol):
    """Publishes batches to a telemetry topic."""

    def publish(self, batch: Batch) -> None: ...
    def close(self, timeout: float) -> None: ...


class WritesDeadLetters(Protocol):
    """Writes dead letters to disk; see `dlq/store_or_spill.py:DeadLetterWriter`."""

    @property
    def waiting(self) -> int: ...
    @property
    def lost(self) -> int: ...
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
        batches: BatchQueue | None = None,
        each_second: Sequence[Callable[[RecorderDestination], None]] = (),
        telemetry: BatchPublisher | None = None,
    ) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._window = window
        self._each_second = tuple(each_second)
        self._telemetry = telemetry
        self._ledger = window.ledger
        self._client = window.client
        self._clock = window.clock
        self._lock = threading.Lock()  # guards the two fields below
        self._notices: list[Notice] = []
        self._flushes: list[threading.Event] = []  # each is set after the next complete write
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._batches = BatchQueue() if batches is None else batches
        self._maintained_at = 0.0
        self._last_state: tuple[object, ...] = ()
        self._news = False  # whether a batch must be written at once
        self._next_collection = math.inf
        self._collected_last = False
        self._time_budget = time_budget.TimeBudget(while_waiting=self._collect_if_due)
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
        """Write everything and stop. Dead letters that cannot be written are spilled; if that fails too, `log_lost` says so.

        Statistics that the store does not take remain in the log, which the next process with this store merges.
        Waits for the store almost until the timeout, and for dead letters on disk for another `_SPILL_TIMEOUT` seconds.
        Telemetry gets half of the time that is left then, because dead letters may have to be published afterwards.
        """
        deadline = Deadline(timeout)
        self._time_budget.end_in(max(timeout / 2, timeout - _LAST_STEP_S))
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)
        if self._dead_letters.waiting:
            self._thread.join(_SPILL_TIMEOUT)
        if self._batches.in_memory_only:
            reason = self._store.trouble or _TIMED_OUT
            logger.error(**with_fields("the last statistics could not be stored", reason=reason))
        if self._telemetry is not None:
            self._telemetry.close(max(_TELEMETRY_AT_LEAST, deadline.left() / 2))

    def log_lost(self) -> None:
        """Log the number of dead letters that no disk and no dead-letter topic has, if any. Call after `stop`."""
        if lost := self._dead_letters.lost:
            reason = self._dead_letters.trouble or self._store.trouble or _TIMED_OUT
            logger.critical(**with_fields("dead letters could not be stored", count=lost, error=reason))

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
        if not self._collected_last:
            self._collected_last = True
            self._collect()
        self._dead_letters.close()
        self._tick(write=True)
        self._batches.close()

    def _tick(self, *, write: bool) -> None:
        write = write or self._store.trouble is not None
        self._collect()
        write |= self._news or self._are_enough()
        self._batches.limit()
        if self._dead_letters.spilled:
            self._dead_letters.flush()
        self._store.use(lambda destination: self._flush_batches(destination, write), part="statistics")
        for step in self._each_second:
            self._store.use(step, part=step)

    # statistics

    def _collect(self) -> None:
        """Take the statistics since the last call, and keep them on disk."""
        self._next_collection = math.inf  # this call may wait for the store, too
        with self._lock:
            notices, self._notices = tuple(self._notices), []
        for batch in self._window.take(notices):
            self._news |= self._has_news(self._batches.add(batch))
            if self._telemetry is not None:
                self._telemetry.publish(batch)
        self._batches.keep()
        self._next_collection = time.monotonic() + _TICK

    def _collect_if_due(self) -> None:
        """Collect once a second, and once when the producer closes. Called while this thread waits for the store."""
        last = self._stopping.is_set() and not self._collected_last
        if (last and self._next_collection < math.inf) or time.monotonic() >= self._next_collection:
            self._collected_last = self._collected_last or last
            self._collect()

    def _has_news(self, batch: Batch) -> bool:
        """Return whether a batch must be written now: it shows a change or an error, or a kill must not lose it."""
        row = batch.producer
        state = () if row is None else (row.cluster_id, row.connected, row.closed_at)
        changed, self._last_state = state != self._last_state, state
        return bool(changed or batch.errors or batch.notices or batch.ledger or batch.given_up)

    def _are_enough(self) -> bool:
        """Return whether the waiting batches are worth a transaction."""
        return len(self._batches) >= (_UNREAD_HEARTBEATS if self._batches.idle else _UNREAD_BATCHES)

    def _flush_batches(self, destination: RecorderDestination, write: bool) -> None:
        if not write and not destination.batches.recently_read():
            return
        self._batches.flush(destination.batches)
        self._news = False
        if time.monotonic() - self._maintained_at > _MAINTENANCE_INTERVAL:
            self._maintained_at = time.monotonic()
            destination.batches.rollup(self._clock())
            destination.batches.prune(self._clock())

    @property
    def ledger_lost(self) -> int:
        """The number of acknowledgements whose ledger rows had no room while the store was not available."""
        return self._batches.ledger_lost

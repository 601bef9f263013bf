"""Replay by Spark: one batch at a time, each slice under a transactional id of its own.

The driver itself sends small batches, the canary first. Before a driver sends anything, it seals every slice: open
transactions of an earlier driver's tasks are aborted, and none of them can start again. Records for which a batch's
tasks returned no outcome are sealed as well, and looked up on their topic: they count as sent when they are there,
else they are sent again.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.log_fields import with_fields
from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.exactly_once.transactional_client import ClientStopped
from producer_core.pipeline.reprocess import batches
from producer_core.pipeline.reprocess.batches import BatchLost, DriverBatch, RunningBatch, SparkBatch
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.pipeline.reprocess.offset_floors import OffsetFloors
from producer_core.pipeline.reprocess.progress_topic import ProgressTopic, seal
from producer_core.pipeline.reprocess.slice_task import SliceTask, outcome_of
from producer_core.pipeline.reprocess.slicing import SliceEpoch
from producer_core.replay.claims import Floors
from producer_core.replay.guard import CanaryRule
from producer_core.replay.outcome import OrphanedRecord, RecordOutcome
from producer_core.replay.phrases import records
from producer_core.replay.strategy import Guarantee, Interrupt, Interrupted
from producer_core.replay.supervisor import Supervisor
from producer_core.replay.transactional import TransactionalReplay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.delivery.dead_letter import ReplayRecord

logger = logging.getLogger(__name__)

TRANSACTION_SIZE = 2000
DRIVER_LIMIT = 2000
"""Records below which, unless the batch is full, the driver sends a batch itself: starting a Spark job takes a second."""
_MAX_LOST = 3
"""Batches lost in a row that end the job; each is settled before the next is sent."""
_RATE_WINDOW = 5.0
"""Seconds of the rate that a batch may take, at most."""
_GRACE = 8.0
"""Seconds that a batch may continue after an end was requested; then its tasks are killed."""
_SETTLE_FOR = 20.0
"""Seconds for settling a batch that was killed because an end was requested."""
_never = threading.Event()  # never set: its wait() is a pause
_REPORT_AFTER = 10.0
"""Seconds after which a running batch is reported."""


@dataclass(frozen=True)
class BatchProgress:
    """Hold what one driver needs for its operation: where it sends, and how its dead letters are sliced."""

    operation_id: str
    settings: Mapping[str, Any]
    epoch: SliceEpoch
    wave: int
    cores: int
    rule: CanaryRule
    rate: Callable[[], float | None]
    newer: str | None = None


class SparkReplay:
    """Run one operation in one driver. Used by one thread; Spark's tasks and the threads of batches send the records."""

    guarantee: Guarantee = "exactly_once"
    by_wave = False

    def __init__(
        self,
        session: Callable[[], SparkSession],
        progress: BatchProgress,
        *,
        floors: Floors,
        interrupt: Interrupt,
        holds: Callable[[], bool],
        ending: Callable[[], bool],
        report: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._session = session
        self._progress = progress
        self._floors = OffsetFloors(floors, self._ends)
        self._stop_requested = interrupt
        self._holds = holds
        self._ending = ending
        self._clients = ClientPool()
        self._batch: RunningBatch | None = None  # being sent
        self._leave_at = float("inf")
        self._settle_by: float | None = None
        self._report = report
        self._clock = clock
        self._number = progress.epoch.first
        self._since: dict[int, int] = {}
        self._queue: deque[ReplayRecord] = deque()
        self._unsettled: list[ReplayRecord] = []  # of the last batch
        self._lost = 0
        self._slow_until = 0.0  # until then the duration of each batch is reported

    @property
    def in_flight(self) -> int:
        return len(self._queue) + len(self._unsettled)

    @property
    def bytes(self) -> int:
        return sum(dead_letter.size for dead_letter in (*self._queue, *self._unsettled))

    @property
    def floors(self) -> Floors:
        return self._floors.now

    # start

    def begin(self, topics: Sequence[str]) -> None:
        """Seal every slice; then the ends of new topics become their floors."""
        lookup = self._lookup_replay()
        try:
            # An ordinary runner's open transaction, if any, ends during the seals: each takes half a second.
            with ThreadPoolExecutor(1, thread_name_prefix="fence") as pool:
                fenced = pool.submit(lookup.begin, ())
                self._seal(range(self._progress.epoch.slicing.count))
                fenced.result()
            lookup.begin(topics)
        finally:
            lookup.close()
        self._floors.reset(lookup.floors)

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        return self._look_up(orphans)

    def _look_up(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        """Return the outcomes of these records; call it when their slices are sealed and no batch is being sent."""
        lookup = self._lookup_replay()
        outcomes = lookup.after(orphans)
        self._floors.reset(lookup.floors)
        return outcomes

    def _lookup_replay(self) -> TransactionalReplay:
        """Return an ordinary replay that reads above the floors and raises them."""
        return TransactionalReplay(
            self._progress.settings,
            self._progress.operation_id,
            floors=self._floors.now,
            supervisor=Supervisor(self._interrupt, self._report, clock=self._clock),
            most=1,
            newer=self._progress.newer,
        )

    def _seal(self, slices: Iterable[int]) -> None:
        self._number += 1
        since = seal(
            self._progress.settings,
            self._seals(),
            self._progress.operation_id,
            list(slices),
            self._number,
            interrupt=self._interrupt,
            report=self._report,
            clients=self._clients,
        )
        self._since |= since

    def _seals(self) -> ProgressTopic:
        return ProgressTopic(self._progress.epoch.topic, self._progress.epoch.partitions, dict(self._since))

    # sending

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        self._queue += dead_letters
        return []

    def give_back(self) -> list[RecordOutcome]:
        outcomes = [RecordOutcome(dead_letter.message_id, "pending") for dead_letter in self._queue]
        self._queue.clear()
        return outcomes

    def gather(self, seconds: float) -> list[RecordOutcome]:
        """Return the outcomes of the batch when it has ended; by then the next batch has started, if there is one."""
        if self._batch is None and self._unsettled:  # interrupted while it was being settled
            return self._settle({})
        if self._batch is None and self._ending():
            return self.give_back()
        if self._batch is None and not self._queue:
            self._wait(seconds)
            return []
        batch = self._batch or self._start_batch()
        if not batch.done.wait(seconds):
            return self._still_running(batch)
        stopping, self._batch, self._leave_at = self._leave_at < float("inf"), None, float("inf")
        self._report_duration(batch)
        outcomes = self._settle(self._task_outcomes(batch))
        if stopping:
            return [*outcomes, *self.give_back()]
        if self._queue and not any(one.ending == "failed" for one in outcomes):
            # Started while the store is updated; after a failure the runner decides first. The outcomes must not be
            # lost, so a batch that cannot start raises its error at the next attempt.
            with contextlib.suppress(Exception):
                self._start_batch()
        return outcomes

    def _report_duration(self, batch: RunningBatch) -> None:
        """Report the duration of a slow batch, and of some after it, so that the message of a running batch does not
        stay."""
        now = time.monotonic()
        if now - batch.began > _REPORT_AFTER:
            self._slow_until = now + _REPORT_AFTER
        if now < self._slow_until:
            self._report(f"{batch.sender} sent {records(len(self._unsettled))} in {now - batch.began:.1f} s")

    def _still_running(self, batch: RunningBatch) -> list[RecordOutcome]:
        """Return no outcomes yet; kill and settle a batch that does not end although an end was requested.

        Nothing is sent after it: another run claims the rest again.
        """
        now = time.monotonic()
        if now - batch.began > _REPORT_AFTER:
            self._report(
                f"{batch.sender} has been sending {records(len(self._unsettled))} for {now - batch.began:.0f} s"
            )
        if self._interrupt() or self._ending():
            self._leave_at = min(self._leave_at, now + _GRACE)
        if now < self._leave_at and self._holds():
            return []
        batch.cancel()
        self._report(
            f"{batch.sender} had to stop a batch of {records(len(self._unsettled))}; the batch is looked up on its topics"
        )
        self._batch, self._leave_at = None, float("inf")
        if not self._holds():
            raise Interrupted
        self._settle_by = now + _SETTLE_FOR
        try:
            return [*self._settle({}), *self.give_back()]
        finally:
            self._settle_by = None

    def _interrupt(self) -> bool:
        if self._settle_by is None:
            return self._stop_requested()
        return not self._holds() or time.monotonic() > self._settle_by

    def _start_batch(self) -> RunningBatch:
        """Start the next batch; on an error its dead letters stay in the queue."""
        progress, rate = self._progress, self._progress.rate()
        most = progress.wave if rate is None else min(progress.wave, max(1, int(rate * _RATE_WINDOW)))
        chosen = list(itertools.islice(self._queue, most))
        dead_letters = batches.slice_table(chosen, progress.epoch.slicing, progress.cores)
        task = SliceTask(
            progress.operation_id,
            progress.settings,
            self._number + 1,
            self._floors.now,
            self._seals(),
            TRANSACTION_SIZE,
            progress.rule,
            len(chosen),
            rate,
            progress.newer,
        )
        batch: RunningBatch
        if len(chosen) < min(DRIVER_LIMIT, progress.wave):
            batch = DriverBatch(dead_letters, task, self._clients, self._holds)
        else:
            batch = SparkBatch(self._session(), dead_letters, task)
            self._clients.drop(dead_letters["slice"].to_pylist())
        batch.start()
        for _ in chosen:
            self._queue.popleft()
        self._number, self._unsettled, self._batch = task.number, chosen, batch
        return batch

    def _task_outcomes(self, batch: RunningBatch) -> dict[str, RecordOutcome]:
        """Return the outcomes of the batch's tasks, by id; none when the batch was lost."""
        try:
            rows = batch.outcomes()
        except BatchLost as lost:
            self._lost += 1
            logger.warning(
                **with_fields(
                    "replay batch lost",
                    operation=self._progress.operation_id,
                    error=str(lost),
                    cause=lost.__cause__,
                )
            )
            self._report(f"{batch.sender} lost a batch, which is being settled: {lost}")
            if self._lost >= _MAX_LOST:
                raise lost.error from lost  # the batch stays claimed, and the floors are below it
            return {}
        self._lost = 0
        return {row["message_id"]: outcome_of(row) for row in rows}

    def _settle(self, reported: Mapping[str, RecordOutcome]) -> list[RecordOutcome]:
        """Return the outcomes of the batch: trust a commit, and look up all others once no attempt can send them any
        more.

        Failures are looked up, too: another attempt of the same task may have succeeded, or may still succeed.
        """
        acknowledged = {one.message_id: one for one in reported.values() if one.ending == "acknowledged"}
        uncertain = [
            dead_letter for dead_letter in self._unsettled if dead_letter.message_id not in acknowledged
        ]
        outcomes = list(acknowledged.values())
        again: list[ReplayRecord] = []
        if uncertain:
            self._seal(sorted({self._progress.epoch.slicing.of(dead_letter) for dead_letter in uncertain}))
            for found, dead_letter in zip(
                self._look_up([OrphanedRecord(one, 0.0) for one in uncertain]), uncertain, strict=True
            ):
                if found.ending == "landed":
                    outcomes.append(
                        RecordOutcome(found.message_id, "acknowledged", None, found.partition, found.offset)
                    )
                elif (
                    dead_letter.message_id in reported
                    and reported[dead_letter.message_id].ending != "pending"
                ):
                    outcomes.append(reported[dead_letter.message_id])
                elif found.ending == "pending":
                    again.append(dead_letter)
                else:
                    outcomes.append(found)
            self._queue.extendleft(reversed(again))
        topics = {dead_letter.message_id: dead_letter.topic for dead_letter in self._unsettled}
        self._unsettled = []
        self._floors.settled((topics[one.message_id], one.partition, one.offset) for one in outcomes)
        return outcomes

    def _ends(self) -> ReadBack:
        return ReadBack(
            self._progress.settings, self._pause, lambda _, text: self._report(text), lambda _: None
        )

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            _never.wait(seconds)
        if self._interrupt():
            raise ClientStopped

    def _wait(self, seconds: float) -> None:
        try:
            self._pause(seconds)
        except ClientStopped:
            raise Interrupted from None

    def close(self) -> None:
        """Kill a batch that is still being sent; the next driver settles it."""
        if self._batch is not None:
            self._batch.cancel()
            self._batch = None
        self._clients.close()

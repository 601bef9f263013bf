"""Send a slice inside a task: fence, read back, send the rest, and return the outcome of each dead letter.

Runs in Spark's Python workers. A task that runs again, on any machine, starts from the beginning: it fences the
earlier attempt, finds the records that it committed, and sends only the others. The driver sends small
batches in the same way, with clients that it keeps.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from producer_core._internal.log_fields import with_fields
from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.exactly_once.transactional_client import ClientStopped
from producer_core.events import Attempt
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.pipeline.reprocess.packing import unpacked
from producer_core.pipeline.reprocess.progress_topic import ProgressTopic, check_seal, slice_id
from producer_core.replay.claims import Floors
from producer_core.replay.guard import CanaryRule, ReplayGuard
from producer_core.replay.outcome import AcknowledgedBatch, FailedReplay, OrphanedRecord, RecordOutcome
from producer_core.replay.pace import ReplayPace
from producer_core.replay.strategy import Interrupted
from producer_core.replay.supervisor import Supervisor
from producer_core.replay.transactional import TransactionalReplay

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)
_never = threading.Event()  # never set: its wait() is a pause

SLICE = "slice int, dead_letters binary"
OUTCOME = (
    "slice int, message_id string, ending string, text string, partition int, offset bigint, verdict string, "
    "death string"
)
"""A dead letter without a row may have been sent or not; the driver looks it up."""

CONCURRENT_SLICES = 8
"""Slices of a task that are sent at the same time: a small slice mostly waits for brokers."""


@dataclass(frozen=True)
class SliceTask:
    """Describe a batch for its tasks.

    `dead_letters` is the batch's size and `rate` its records per second; a seal with a greater number than `number`
    ends the task. A slice in which too many records fail by `rule` (canary aside) gives the others back.
    """

    operation_id: str
    settings: Mapping[str, Any]
    number: int
    floors: Floors
    progress: ProgressTopic
    transaction_size: int
    rule: CanaryRule
    dead_letters: int
    rate: float | None = None
    newer: str | None = None


def task_function(
    task: SliceTask,
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Return the function for `mapInArrow`; it imports this module where it runs."""

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from producer_core.pipeline.reprocess.slice_task import send

        yield from send(task, batches)

    return run


def send(
    task: SliceTask,
    batches: Iterable[pyarrow.RecordBatch],
    *,
    clients: ClientPool | None = None,
    abandoned: Callable[[], bool] | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the outcomes of the dead letters, one slice at a time as each ends.

    `abandoned` returns whether the result is no longer wanted; by default, whether the Spark process that started
    this worker has ended.
    """
    import pyarrow

    parent = os.getppid()
    is_abandoned = abandoned or (lambda: os.getppid() != parent)
    rows = [row for batch in batches for row in batch.to_pylist()]
    slices = {row["slice"]: unpacked(row["dead_letters"]) for row in rows}
    pace = _TaskPace(task, slices)

    def one(slice_: int) -> list[dict[str, Any]]:
        if is_abandoned():  # a seal may have given a client to the pool that this attempt must not use
            return []
        return [
            _row_of(slice_, one) for one in _Slice(pace, slice_, clients, is_abandoned).send(slices[slice_])
        ]

    with ThreadPoolExecutor(CONCURRENT_SLICES, thread_name_prefix="slice") as pool:
        for future in as_completed([pool.submit(one, slice_) for slice_ in slices]):
            if rows_of_slice := future.result():
                yield pyarrow.RecordBatch.from_pylist(rows_of_slice, schema=outcome_schema())


class _TaskPace:
    """Share a task's part of the batch's rate between its slices, in proportion to the task's records."""

    def __init__(self, task: SliceTask, slices: Mapping[int, Sequence[ReplayRecord]]) -> None:
        self.task = task
        self.transaction_size = task.transaction_size
        self._lock = threading.Lock()  # guards the pace
        rate = None
        if task.rate is not None:
            rate = task.rate * sum(map(len, slices.values())) / task.dead_letters
            self.transaction_size = max(
                1, min(task.transaction_size, int(rate / max(1, min(CONCURRENT_SLICES, len(slices)))))
            )
        self._pace = ReplayPace(rate, time.monotonic())

    def has_room(self) -> bool:
        with self._lock:
            # Negative after a transaction that was larger than the room.
            return self._pace.room(time.monotonic(), 1) > 0

    def spend(self, count: int) -> None:
        with self._lock:
            self._pace.spend(count)


class _Slice:
    """Send one slice in one attempt of a task."""

    def __init__(
        self, pace: _TaskPace, slice_: int, clients: ClientPool | None, abandoned: Callable[[], bool]
    ) -> None:
        task = pace.task
        self._pace = pace
        self._number = task.number
        self._slice = slice_
        self._clients = clients
        self._abandoned = abandoned
        self._guard = ReplayGuard(replace(task.rule, canary=0))
        client = None if clients is None else clients.take(slice_, task.number)
        self._proven = client is not None
        self._check_seal = partial(
            check_seal,
            task.settings,
            task.progress,
            task.operation_id,
            slice_,
            task.number,
            wait=self._wait,
        )
        self._replay = TransactionalReplay(
            task.settings,
            slice_id(task.operation_id, slice_),
            floors=task.floors,
            supervisor=Supervisor(
                abandoned,
                lambda text: logger.info(**with_fields("replay waits", why=text)),
                fenced=self._check_seal,
            ),
            most=pace.transaction_size,
            yields=True,
            newer=task.newer,
            client=client,
        )

    def send(self, dead_letters: list[ReplayRecord]) -> list[RecordOutcome]:
        """Return the outcomes; none for records that were in flight when this attempt had to stop."""
        outcomes: list[RecordOutcome] = []
        try:
            found = {} if self._proven else self._found(dead_letters)
            outcomes += found.values()
            outcomes += self._replay.send([one for one in dead_letters if one.message_id not in found])
            while self._replay.in_flight:
                self._await_room()
                before = self._replay.in_flight
                outcomes += self._counted(self._replay.gather(0.1))
                self._pace.spend(before - self._replay.in_flight)
            if self._clients is not None and (client := self._replay.hand_on()):
                self._clients.give(self._slice, self._number, client)
        except Interrupted:
            logger.info("slice left to another attempt")
        finally:
            self._replay.close()
        return outcomes

    def _found(self, dead_letters: list[ReplayRecord]) -> dict[str, RecordOutcome]:
        """Fence, and return the records that an earlier attempt sent."""
        self._replay.begin(())  # no floors of its own: that attempt may have sent below the current ends
        found = self._replay.after([OrphanedRecord(one, 0.0) for one in dead_letters])
        return {one.message_id: _as_sent(one) for one in found if one.ending != "pending"}

    def _counted(self, gathered: list[RecordOutcome] | AcknowledgedBatch) -> list[RecordOutcome]:
        """Count failures, and give back the rest of the slice when too many fail; the job's own rule decides on it."""
        outcomes = gathered.outcomes() if isinstance(gathered, AcknowledgedBatch) else gathered
        for one in outcomes:
            if one.ending in ("acknowledged", "failed"):
                self._guard.record(failed=one.ending == "failed")
        return [*outcomes, *self._replay.give_back()] if self._guard.verdict() else outcomes

    def _await_room(self) -> None:
        while not self._pace.has_room():
            try:
                self._wait(0.05)
            except ClientStopped:
                raise Interrupted from None

    def _wait(self, seconds: float) -> None:
        _never.wait(seconds)
        if self._abandoned():
            raise ClientStopped


def _as_sent(one: RecordOutcome) -> RecordOutcome:
    """Count a record found on its topic as sent: above the batch's floors only its own attempts wrote these ids."""
    if one.ending != "landed":
        return one
    return RecordOutcome(one.message_id, "acknowledged", None, one.partition, one.offset)


def _row_of(slice_: int, one: RecordOutcome) -> dict[str, Any]:
    return {
        "slice": slice_,
        "message_id": one.message_id,
        "ending": one.ending,
        "text": one.text,
        "partition": one.partition,
        "offset": one.offset,
        "verdict": one.verdict,
        "death": None if one.death is None else orjson.dumps(tuple(one.death)).decode(),
    }


def outcome_of(row: Mapping[str, Any]) -> RecordOutcome:
    """Return the outcome of a task's row."""
    death = None
    if row["death"] is not None:
        *fields, attempts = orjson.loads(row["death"])
        death = FailedReplay._make((*fields, tuple(Attempt(**one) for one in attempts)))
    return RecordOutcome(
        row["message_id"], row["ending"], row["text"], row["partition"], row["offset"], row["verdict"], death
    )


def outcome_schema() -> pyarrow.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("slice", pa.int32()), ("message_id", pa.string()), ("ending", pa.string()), ("text", pa.string()),
            ("partition", pa.int32()), ("offset", pa.int64()), ("verdict", pa.string()), ("death", pa.string()),
        ]
    )  # fmt: skip

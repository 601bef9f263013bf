"""The sending of a slice inside a task: fence, read back, send the rest, say what became of each letter.

Runs in Spark's Python workers. A task that runs again, on whatever machine, does the same from the beginning: it
fences the earlier attempt, finds what that one committed, and sends only what is not there. Small waves the driver sends
in the same way, with clients that it keeps.
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

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.exactly_once.transactional_client import ClientStopped
from producer_core.events import Attempt
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.pipeline.reprocess.packing import unpacked
from producer_core.pipeline.reprocess.progress_topic import ProgressTopic, admitted, slice_id
from producer_core.replay.claims import Floors
from producer_core.replay.execution import ReplayPace
from producer_core.replay.guard import CanaryRule, ReplayGuard
from producer_core.replay.outcome import FailedReplay, OrphanedRecord, RecordOutcome
from producer_core.replay.strategy import Interrupted
from producer_core.replay.transactional import Supervisor, TransactionalReplay

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)
_never = threading.Event()  # waiting on it is a pause

SLICE = "slice int, letters binary"
OUTCOME = (
    "slice int, message_id string, ending string, text string, partition int, offset bigint, verdict string, "
    "death string"
)
"""A dead letter of which a task says nothing may have been sent or not: the driver finds out."""

TOGETHER = 8
"""Slices of a task that are sent at once: for most of its time a small one waits for brokers."""


@dataclass(frozen=True)
class SliceTask:
    """What every task of a wave knows: `dead letters` are in it, and `rate` of them go a second; `number` is its own, and seals
    with a greater one end the task. A slice of which too many fail by `rule` (canary aside) gives the others back."""

    operation_id: str
    settings: Mapping[str, Any]
    number: int
    floors: Floors
    notes: ProgressTopic
    most: int
    rule: CanaryRule
    dead_letters: int
    rate: float | None = None
    newer: str | None = None


def runner(errand: SliceTask) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """What `mapInArrow` takes; it loads this module where it runs."""

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from producer_core.pipeline.reprocess.slice_task import send

        yield from send(errand, batches)

    return run


def send(
    errand: SliceTask,
    batches: Iterable[pyarrow.RecordBatch],
    *,
    keep: ClientPool | None = None,
    alone: Callable[[], bool] | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """What became of the dead letters, a slice at a time as each ends.

    `alone` says whether nobody wants it any more: by default, whether Spark's process that made us is gone.
    """
    import pyarrow

    parent = os.getppid()
    left = alone or (lambda: os.getppid() != parent)
    rows = [row for batch in batches for row in batch.to_pylist()]
    slices = {row["slice"]: unpacked(row["letters"]) for row in rows}
    course = _Course(errand, slices)

    def one(slice_: int) -> list[dict[str, Any]]:
        if left():  # a seal may have given a client already that is not for us
            return []
        return [_told(slice_, one) for one in _Slice(course, slice_, keep, left).send(slices[slice_])]

    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="slice") as pool:
        for future in as_completed([pool.submit(one, slice_) for slice_ in slices]):
            if told := future.result():
                yield pyarrow.RecordBatch.from_pylist(told, schema=outcome_schema())


class _Course:
    """What the slices of a task share: its errand, and of the wave's rate as much as it has of the wave's letters."""

    def __init__(self, errand: SliceTask, slices: Mapping[int, Sequence[ReplayRecord]]) -> None:
        self.errand = errand
        self.most = errand.most
        self._lock = threading.Lock()  # guards the pace
        rate = None
        if errand.rate is not None:
            rate = errand.rate * sum(map(len, slices.values())) / errand.dead_letters
            self.most = max(1, min(errand.most, int(rate / max(1, min(TOGETHER, len(slices))))))
        self._pace = ReplayPace(rate, time.monotonic())

    def may_go(self) -> bool:
        with self._lock:
            # Below zero where a transaction took more than there was.
            return self._pace.room(time.monotonic(), 1) > 0

    def went(self, count: int) -> None:
        with self._lock:
            self._pace.spend(count)


class _Slice:
    """One slice in one attempt of a task."""

    def __init__(
        self, course: _Course, slice_: int, keep: ClientPool | None, alone: Callable[[], bool]
    ) -> None:
        errand = course.errand
        self._course = course
        self._number = errand.number
        self._slice = slice_
        self._keep = keep
        self._alone = alone
        self._guard = ReplayGuard(replace(errand.rule, canary=0))
        client = None if keep is None else keep.take(slice_, errand.number)
        self._proven = client is not None
        self._admitted = partial(
            admitted,
            errand.settings,
            errand.notes,
            errand.operation_id,
            slice_,
            errand.number,
            wait=self._wait,
        )
        self._way = TransactionalReplay(
            errand.settings,
            slice_id(errand.operation_id, slice_),
            floors=errand.floors,
            supervisor=Supervisor(
                alone, lambda text: logger.info("replay waits", extra={"why": text}), fenced=self._admitted
            ),
            most=course.most,
            yields=True,
            newer=errand.newer,
            client=client,
        )

    def send(self, dead_letters: list[ReplayRecord]) -> list[RecordOutcome]:
        """What became of them; nothing of those that were under way when this attempt had to leave."""
        outcomes: list[RecordOutcome] = []
        try:
            found = {} if self._proven else self._found(dead_letters)
            outcomes += found.values()
            outcomes += self._way.send([one for one in dead_letters if one.message_id not in found])
            while self._way.in_flight:
                self._await_room()
                before = self._way.in_flight
                outcomes += self._heard(self._way.gather(0.1))
                self._course.went(before - self._way.in_flight)
            if self._keep is not None and (client := self._way.hand_on()):
                self._keep.give(self._slice, self._number, client)
        except Interrupted:
            logger.info("a slice is left to another attempt")
        finally:
            self._way.close()
        return outcomes

    def _found(self, dead_letters: list[ReplayRecord]) -> dict[str, RecordOutcome]:
        """What an earlier attempt sent, after the fence."""
        self._way.begin(())  # no floors of its own: that attempt may have sent below the ends of now
        found = self._way.after([OrphanedRecord(one, 0.0) for one in dead_letters])
        return {one.message_id: _as_sent(one) for one in found if one.ending != "pending"}

    def _heard(self, outcomes: list[RecordOutcome]) -> list[RecordOutcome]:
        """With what is given back, where too many fail: whoever counts for the whole job decides about the rest."""
        for one in outcomes:
            if one.ending in ("acknowledged", "failed"):
                self._guard.heard(failed=one.ending == "failed")
        return [*outcomes, *self._way.give_back()] if self._guard.verdict() else outcomes

    def _await_room(self) -> None:
        while not self._course.may_go():
            try:
                self._wait(0.05)
            except ClientStopped:
                raise Interrupted from None

    def _wait(self, seconds: float) -> None:
        _never.wait(seconds)
        if self._alone():
            raise ClientStopped


def _as_sent(one: RecordOutcome) -> RecordOutcome:
    """Above the floors of a wave only the wave's own attempts wrote these ids."""
    if one.ending != "landed":
        return one
    return RecordOutcome(one.message_id, "acknowledged", None, one.partition, one.offset)


def _told(slice_: int, one: RecordOutcome) -> dict[str, Any]:
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
    """As a task told it."""
    death = None
    if row["death"] is not None:
        *said, attempts = orjson.loads(row["death"])
        death = FailedReplay._make((*said, tuple(Attempt(**one) for one in attempts)))
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

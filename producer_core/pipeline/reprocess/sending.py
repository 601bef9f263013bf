"""The sending of a slice inside a Spark task: fence, read back, send the rest, say what became of each letter.

Runs in Spark's Python workers. A task that runs again, on whatever machine, does the same from the beginning: it
fences the earlier attempt, finds what that one committed, and sends only what is not there.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from producer_core.events import Attempt, DeadLetter
from producer_core.exactly_once.client import Stopped
from producer_core.pipeline.reprocess.progress import Notes, admitted, slice_id
from producer_core.replay.claims import Floors, Orphan, Outcome
from producer_core.replay.transacting import Transacting
from producer_core.replay.way import Interrupted
from producer_core.replay.work import Pace

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)
_never = threading.Event()  # waiting on it is a pause

LETTER = (
    "slice int, place int, ord int, message_id string, topic string, partition int, key binary, value binary, "
    "headers array<struct<name string, value binary>>, timestamp_ms bigint, accepted_at double, verdict string, "
    "verdict_reason string"
)
OUTCOME = (
    "slice int, message_id string, ending string, text string, partition int, offset bigint, verdict string, "
    "death string"
)
"""A letter of which a task says nothing may have been sent or not: the driver finds out."""

_DEATH = ("kind", "code", "error_text", "fingerprint", "verdict", "verdict_reason", "failed_at")


@dataclass(frozen=True)
class Errand:
    """What every task of a wave knows. `rate` is a task's share of what goes a second; `number` is the wave's, and
    seals with a greater one end the task."""

    operation_id: str
    settings: Mapping[str, Any]
    number: int
    floors: Floors
    notes: Notes
    most: int
    rate: float | None = None


def runner(errand: Errand) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """What `mapInArrow` takes; it loads this module where it runs."""

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from producer_core.pipeline.reprocess.sending import send

        yield from send(errand, batches)

    return run


def send(errand: Errand, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """One slice after the other, in the order in which they come."""
    import pyarrow

    rows = (row for batch in batches for row in batch.to_pylist())
    for slice_, some in itertools.groupby(rows, key=lambda row: row["slice"]):
        told = [_told(slice_, one) for one in _Slice(errand, slice_).send([letter_of(row) for row in some])]
        if told:
            yield pyarrow.RecordBatch.from_pylist(told, schema=outcome_schema())


class _Slice:
    """One slice in one attempt of a task."""

    def __init__(self, errand: Errand, slice_: int) -> None:
        self._errand = errand
        self._parent = os.getppid()
        self._admitted = partial(
            admitted,
            errand.settings,
            errand.notes,
            errand.operation_id,
            slice_,
            errand.number,
            wait=self._wait,
        )
        self._way = Transacting(
            errand.settings,
            slice_id(errand.operation_id, slice_),
            floors=errand.floors,
            most=errand.most if errand.rate is None else max(1, min(errand.most, int(errand.rate))),
            interrupt=self._alone,
            say=lambda text: logger.info("replay waits", extra={"why": text}),
            clock=time.time,
            fenced=self._admitted,
            yields=True,
        )

    def send(self, letters: list[DeadLetter]) -> list[Outcome]:
        """What became of them; nothing of those that were under way when this attempt had to leave."""
        outcomes: list[Outcome] = []
        try:
            # No floors of its own: an earlier attempt may have sent below the ends of now.
            self._way.begin(())
            found = {one.message_id: one for one in self._way.after([Orphan(one, 0.0) for one in letters])}
            outcomes += [_as_sent(one) for one in found.values() if one.ending != "pending"]
            outcomes += self._way.send([one for one in letters if found[one.message_id].ending == "pending"])
            pace = Pace(self._errand.rate, time.monotonic())
            while self._way.in_flight:
                self._await_room(pace)
                before = self._way.in_flight
                outcomes += self._way.gather(0.1)
                pace.spend(before - self._way.in_flight)
        except Interrupted:
            logger.info("a slice is left to another attempt")
        finally:
            self._way.close()
        return outcomes

    def _await_room(self, pace: Pace) -> None:
        while not pace.room(time.monotonic(), 1):
            try:
                self._wait(0.05)
            except Stopped:
                raise Interrupted from None

    def _wait(self, seconds: float) -> None:
        _never.wait(seconds)
        if self._alone():
            raise Stopped

    def _alone(self) -> bool:
        """Whether Spark's process that made us is gone."""
        return os.getppid() != self._parent


def _as_sent(one: Outcome) -> Outcome:
    """Above the floors of a wave only the wave's own attempts wrote these ids."""
    if one.ending != "landed":
        return one
    return Outcome(one.message_id, "acknowledged", None, one.partition, one.offset)


def letter_of(row: Mapping[str, Any]) -> DeadLetter:
    """A letter as far as sending must know it."""
    return DeadLetter(
        message_id=row["message_id"],
        cluster_id="",
        producer_id="",
        topic=row["topic"],
        key=row["key"],
        value=row["value"],
        headers=tuple((header["name"], header["value"]) for header in row["headers"]),
        partition=row["partition"],
        timestamp_ms=row["timestamp_ms"],
        verdict=row["verdict"],
        verdict_reason=row["verdict_reason"],
        kind="permanent",
        code="",
        error_text="",
        fingerprint="",
        attempts=(),
        accepted_at=row["accepted_at"],
        failed_at=0.0,
    )


def _told(slice_: int, one: Outcome) -> dict[str, Any]:
    death = None if one.letter is None else {name: getattr(one.letter, name) for name in _DEATH}
    return {
        "slice": slice_,
        "message_id": one.message_id,
        "ending": one.ending,
        "text": one.text,
        "partition": one.partition,
        "offset": one.offset,
        "verdict": one.verdict,
        "death": None if death is None else orjson.dumps(death).decode(),
    }


def outcome_of(row: Mapping[str, Any], letter: DeadLetter) -> Outcome:
    """As a task told it; a new death is added to the letter's own story."""
    death = None
    if row["death"] is not None:
        said = orjson.loads(row["death"])
        last = Attempt(said["failed_at"], said["code"], said["error_text"])
        death = replace(letter, attempts=(*letter.attempts, last), **said)
    return Outcome(
        row["message_id"], row["ending"], row["text"], row["partition"], row["offset"], death, row["verdict"]
    )


def outcome_schema() -> pyarrow.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("slice", pa.int32()), ("message_id", pa.string()), ("ending", pa.string()), ("text", pa.string()),
            ("partition", pa.int32()), ("offset", pa.int64()), ("verdict", pa.string()), ("death", pa.string()),
        ]
    )  # fmt: skip

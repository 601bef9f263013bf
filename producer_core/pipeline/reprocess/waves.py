"""A wave: letters that go out at once, as a chain of DataFrame to DataFrame functions, and the run of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.errors import PipelineError, ProducerError
from producer_core.pipeline.reprocess.sending import LETTER, OUTCOME, Errand, runner
from producer_core.pipeline.reprocess.slices import Slicing, places
from producer_core.pipeline.spark_errors import explained
from producer_core.replay.way import Interrupted

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.events import DeadLetter

GRACE = 8.0
"""Seconds that a wave may go on when somebody wants it to end; then its tasks are killed."""
_LOOK = 0.2


class WaveLost(Exception):
    """Spark gave the wave up; `error` says why. Any part of it may have been sent."""

    def __init__(self, error: ProducerError) -> None:
        super().__init__(str(error))
        self.error = error


def table(letters: Sequence[DeadLetter], slicing: Slicing) -> pyarrow.Table:
    """The letters with their slices, in the order in which they are to go."""
    import pyarrow

    slices = [slicing.of(letter) for letter in letters]
    place = places(sorted({*slices}))
    rows = [
        _row(letter, slice_, place, ord_)
        for ord_, (letter, slice_) in enumerate(zip(letters, slices, strict=True))
    ]
    return pyarrow.Table.from_pylist(rows, schema=letter_schema())


def _row(letter: DeadLetter, slice_: int, place: Mapping[int, int], ord_: int) -> dict[str, Any]:
    return {
        "slice": slice_,
        "place": place[slice_],
        "ord": ord_,
        "message_id": letter.message_id,
        "topic": letter.topic,
        "partition": letter.partition,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"name": name, "value": value} for name, value in letter.headers],
        "timestamp_ms": letter.timestamp_ms,
        "accepted_at": letter.accepted_at,
        "verdict": letter.verdict,
        "verdict_reason": letter.verdict_reason,
    }


def letter_schema() -> pyarrow.Schema:
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("slice", pa.int32()), ("place", pa.int32()), ("ord", pa.int32()), ("message_id", pa.string()),
            ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()),
            ("headers", pa.list_(header)), ("timestamp_ms", pa.int64()), ("accepted_at", pa.float64()),
            ("verdict", pa.string()), ("verdict_reason", pa.string()),
        ]
    )  # fmt: skip


def apart(letters: DataFrame, count: int) -> DataFrame:
    """Each slice whole in one Spark partition, in its order."""
    return letters.repartition(count, "place").sortWithinPartitions("slice", "ord")


def sent(letters: DataFrame, errand: Errand) -> DataFrame:
    """What became of each letter."""
    return letters.mapInArrow(runner(errand), OUTCOME)


def run(
    session: SparkSession,
    letters: pyarrow.Table,
    errand: Errand,
    *,
    interrupt: Callable[[], bool],
    told: Callable[[float], None] = lambda seconds: None,
    grace: float = GRACE,
) -> list[dict[str, Any]]:
    """The outcomes of a wave. `told` hears, now and then, for how many seconds it has been going.

    WaveLost when Spark gave it up; Interrupted when it was told to leave and did not end in `grace` seconds. In
    both cases tasks may live on for a while, until their slices are sealed.
    """
    count = len(letters["slice"].unique())
    job = _Job(session, lambda: sent(apart(session.createDataFrame(letters, LETTER), count), errand), errand)
    job.start()
    began, wanted = time.monotonic(), float("inf")
    while not job.done.wait(_LOOK):
        now = time.monotonic()
        told(now - began)
        if interrupt():
            wanted = min(wanted, now)
        if now - wanted > grace:
            job.cancel()
            raise Interrupted
    return job.result()


class _Job(threading.Thread):
    """Spark's answer is waited for in a thread of its own, so that the driver can be told to leave."""

    def __init__(self, session: SparkSession, frame: Callable[[], DataFrame], errand: Errand) -> None:
        super().__init__(name="reprocess-wave", daemon=True)
        self.done = threading.Event()
        self._session = session
        self._frame = frame
        self._group = f"reprocess-{errand.operation_id}-{errand.number}"
        self._text = f"replay {errand.operation_id}: {errand.number & 0xFFFFFFFF}"
        self._rows: list[dict[str, Any]] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            context = self._session.sparkContext
            context.setJobGroup(self._group, self._text)
            self._rows = self._frame().toArrow().to_pylist()
        except Exception as error:  # noqa: BLE001  Spark's and py4j's own have no common root
            self._error = error
        finally:
            self.done.set()

    def cancel(self) -> None:
        with contextlib.suppress(Exception):  # the JVM may be gone
            self._session.sparkContext.cancelJobGroup(self._group)

    def result(self) -> list[dict[str, Any]]:
        if self._error is None:
            return self._rows
        told = explained(self._error) or PipelineError(f"Spark failed: {type(self._error).__name__}.")
        raise WaveLost(told) from self._error

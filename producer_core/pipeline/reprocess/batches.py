"""A wave: dead letters that go out at once, by Spark's tasks or by the driver's own threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.errors import PipelineError, ProducerError
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.pipeline.reprocess.packing import packed
from producer_core.pipeline.reprocess.slice_task import OUTCOME, SLICE, SliceTask, runner, send
from producer_core.pipeline.reprocess.slicing import Slicing
from producer_core.pipeline.spark_errors import explained

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.delivery.dead_letter import ReplayRecord


class BatchLost(Exception):
    """Spark gave the wave up; `error` says why. Any part of it may have been sent."""

    def __init__(self, error: ProducerError) -> None:
        super().__init__(str(error))
        self.error = error


def table(dead_letters: Sequence[ReplayRecord], slicing: Slicing, tasks: int = 1) -> pyarrow.Table:
    """A row for each slice, its dead letters in the order in which they are to go; for so many tasks at once.

    Spark cuts few rows into as many runs as there are tasks: the largest slices are dealt to different ones.
    """
    import pyarrow as pa

    found: dict[int, list[ReplayRecord]] = {}
    for dead_letter in dead_letters:
        found.setdefault(slicing.of(dead_letter), []).append(dead_letter)
    largest = sorted(found, key=lambda slice_: -len(found[slice_]))
    rows = [
        {"slice": slice_, "letters": packed(found[slice_])}
        for task in range(tasks)
        for slice_ in largest[task::tasks]
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([("slice", pa.int32()), ("letters", pa.binary())]))


def sent(slices: DataFrame, errand: SliceTask) -> DataFrame:
    """What became of each letter. A row is a whole slice, so there is nothing to shuffle."""
    return slices.mapInArrow(runner(errand), OUTCOME)


class RunningBatch(threading.Thread):
    """One wave on its way, in a thread of its own. Used by one other thread."""

    who: str

    def __init__(self, dead_letters: pyarrow.Table, errand: SliceTask) -> None:
        super().__init__(name="reprocess-wave", daemon=True)
        self.done = threading.Event()
        self.began = time.monotonic()
        self._dead_letters = dead_letters
        self._errand = errand
        self._rows: list[dict[str, Any]] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._rows = self._sent()
        except Exception as error:  # noqa: BLE001  Spark's and py4j's own have no common root
            self._error = error
        finally:
            self.done.set()

    def _sent(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def cancel(self) -> None:
        """What it has under way may live on for a moment, until its slices are sealed."""
        raise NotImplementedError

    def outcomes(self) -> list[dict[str, Any]]:
        """What was said of its letters. WaveLost when it was given up."""
        if self._error is None:
            return self._rows
        told = explained(self._error) or PipelineError(f"{self.who} failed: {type(self._error).__name__}.")
        raise BatchLost(told) from self._error


class SparkBatch(RunningBatch):
    """By Spark's tasks, a slice each."""

    who = "Spark"

    def __init__(self, session: SparkSession, dead_letters: pyarrow.Table, errand: SliceTask) -> None:
        super().__init__(dead_letters, errand)
        self._session = session
        self._group = f"reprocess-{errand.operation_id}-{errand.number}"

    def _sent(self) -> list[dict[str, Any]]:
        self._session.sparkContext.setJobGroup(self._group, f"replay {self._errand.operation_id}")
        slices = self._session.createDataFrame(self._dead_letters, SLICE)
        rows: list[dict[str, Any]] = sent(slices, self._errand).toArrow().to_pylist()
        return rows

    def cancel(self) -> None:
        with contextlib.suppress(Exception):  # the JVM may be gone
            self._session.sparkContext.cancelJobGroup(self._group)


class DriverBatch(RunningBatch):
    """By threads of the driver, with clients that it keeps: for few dead letters a job of Spark's takes longer to begin than
    they take to be sent. `holds` says whether the operation is ours still."""

    who = "The driver"

    def __init__(
        self, dead_letters: pyarrow.Table, errand: SliceTask, keep: ClientPool, holds: Callable[[], bool]
    ) -> None:
        super().__init__(dead_letters, errand)
        self._keep = keep
        self._holds = holds
        self._cancelled = threading.Event()

    def _sent(self) -> list[dict[str, Any]]:
        batches = self._dead_letters.to_batches()
        told = send(self._errand, batches, keep=self._keep, alone=self._unwanted)
        return [row for batch in told for row in batch.to_pylist()]

    def _unwanted(self) -> bool:
        return self._cancelled.is_set() or not self._holds()

    def cancel(self) -> None:
        self._cancelled.set()

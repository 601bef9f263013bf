"""Send one batch of dead letters, by Spark's tasks or by the driver's own threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.errors import PipelineError, ProducerError
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.pipeline.reprocess.packing import packed
from producer_core.pipeline.reprocess.slice_task import OUTCOME, SLICE, SliceTask, send, task_function
from producer_core.pipeline.reprocess.slicing import Slicing
from producer_core.pipeline.spark_errors import explained

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.delivery.dead_letter import ReplayRecord


class BatchLost(Exception):
    """Spark or the driver lost the batch; `error` has the reason. Any part of the batch may have been sent."""

    def __init__(self, error: ProducerError) -> None:
        super().__init__(str(error))
        self.error = error


def slice_table(dead_letters: Sequence[ReplayRecord], slicing: Slicing, tasks: int = 1) -> pyarrow.Table:
    """Return one row per slice with its dead letters in sending order, for `tasks` concurrent tasks.

    Spark cuts the few rows into consecutive parts, one per task, so the largest slices are put into different parts.
    """
    import pyarrow as pa

    found: dict[int, list[ReplayRecord]] = {}
    for dead_letter in dead_letters:
        found.setdefault(slicing.of(dead_letter), []).append(dead_letter)
    largest = sorted(found, key=lambda slice_: -len(found[slice_]))
    rows = [
        {"slice": slice_, "dead_letters": packed(found[slice_])}
        for task in range(tasks)
        for slice_ in largest[task::tasks]
    ]
    return pa.Table.from_pylist(
        rows, schema=pa.schema([("slice", pa.int32()), ("dead_letters", pa.binary())])
    )


def send_slices(slices: DataFrame, task: SliceTask) -> DataFrame:
    """Return the outcome of each dead letter. A row is a whole slice, so nothing is shuffled."""
    return slices.mapInArrow(task_function(task), OUTCOME)


class RunningBatch(threading.Thread):
    """Send one batch in a thread of its own; only one other thread uses the object."""

    sender: str

    def __init__(self, dead_letters: pyarrow.Table, task: SliceTask) -> None:
        super().__init__(name="reprocess-batch", daemon=True)
        self.done = threading.Event()
        self.began = time.monotonic()
        self._dead_letters = dead_letters
        self._task = task
        self._rows: list[dict[str, Any]] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._rows = self._send()
        except Exception as error:  # noqa: BLE001  Spark's and py4j's errors have no common base
            self._error = error
        finally:
            self.done.set()

    def _send(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop sending. Records already in progress may still be written until their slices are sealed."""
        raise NotImplementedError

    def outcomes(self) -> list[dict[str, Any]]:
        """Return the outcomes of the dead letters; raise BatchLost when the batch failed."""
        if self._error is None:
            return self._rows
        known = explained(self._error) or PipelineError(
            f"{self.sender} failed: {type(self._error).__name__}."
        )
        raise BatchLost(known) from self._error


class SparkBatch(RunningBatch):
    """Send a batch by Spark's tasks, one slice each."""

    sender = "Spark"

    def __init__(self, session: SparkSession, dead_letters: pyarrow.Table, task: SliceTask) -> None:
        super().__init__(dead_letters, task)
        self._session = session
        self._group = f"reprocess-{task.operation_id}-{task.number}"

    def _send(self) -> list[dict[str, Any]]:
        self._session.sparkContext.setJobGroup(self._group, f"replay {self._task.operation_id}")
        slices = self._session.createDataFrame(self._dead_letters, SLICE)
        rows: list[dict[str, Any]] = send_slices(slices, self._task).toArrow().to_pylist()
        return rows

    def cancel(self) -> None:
        with contextlib.suppress(Exception):  # the JVM may have ended
            self._session.sparkContext.cancelJobGroup(self._group)


class DriverBatch(RunningBatch):
    """Send a batch by threads of the driver, with the clients that it keeps.

    For a few dead letters, starting a Spark job takes longer than sending them. `holds` returns whether this driver
    still has the operation's lease.
    """

    sender = "The driver"

    def __init__(
        self, dead_letters: pyarrow.Table, task: SliceTask, clients: ClientPool, holds: Callable[[], bool]
    ) -> None:
        super().__init__(dead_letters, task)
        self._clients = clients
        self._holds = holds
        self._cancelled = threading.Event()

    def _send(self) -> list[dict[str, Any]]:
        batches = self._dead_letters.to_batches()
        results = send(self._task, batches, clients=self._clients, abandoned=self._abandoned)
        return [row for batch in results for row in batch.to_pylist()]

    def _abandoned(self) -> bool:
        return self._cancelled.is_set() or not self._holds()

    def cancel(self) -> None:
        self._cancelled.set()

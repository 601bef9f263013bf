"""Process a micro-batch of the telemetry stream: fetch it in pieces, and merge each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core.errors import PipelineError
from producer_core.pipeline.merge_batch import record_micro_batch
from producer_core.pipeline.merge_result import MergeResult
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.pipeline.piece_merger import PieceMerger, Reached
from producer_core.pipeline.slices import pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from producer_core.store import Store

_END_TIMEOUT = 60.0


class TelemetrySink:
    """Handle the calls of `foreachBatch`, on a thread of py4j.

    The sink keeps its own error, because Spark would pass it on as text. `reached` is called at each step: "received",
    and those of `PieceMerger`. At "merged", Spark's checkpoint is not committed yet.
    """

    def __init__(
        self,
        store: Store,
        aside: Path,
        history: ParquetHistory | None,
        on_merged: Callable[[MergeResult], None],
        reached: Reached,
        *,
        options: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pieces = PieceMerger(store, history, reached, clock)
        self._aside, self._on_merged, self._reached = aside, on_merged, reached
        self._options, self._clock = options, clock
        self._busy = threading.Lock()  # held while a micro-batch is merged
        self._ending = False
        self.error: Exception | None = None

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        with self._busy:
            try:
                self._check_running()
                self._on_merged(self._merge(records, batch_id))
            except Exception as error:
                self.error = error
                raise

    def end(self) -> None:
        """Accept no further micro-batch, and wait until the current one, or its current piece, is done."""
        self._ending = True
        if self._busy.acquire(timeout=_END_TIMEOUT):
            self._busy.release()

    def _merge(self, records: DataFrame, batch_id: int) -> MergeResult:
        self._reached("received")
        query_id = str(records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        done = MergeResult()
        for number, (piece, last) in enumerate(pieces(records, self._options), 1):
            self._check_running()
            aside = self._aside / f"{query_id}-{batch_id:08d}-{number:04d}.parquet"
            first = batch_id == 0 and number == 1
            # Only the last piece records the micro-batch as merged: a copy of the store made earlier lacks the
            # others.
            record = partial(record_micro_batch, query_id=query_id, batch_id=batch_id, now=self._clock())
            done += self._pieces.merge(piece, aside, record if last else None, first=first)
        return done

    def _check_running(self) -> None:
        if self._ending:
            # returning would report the micro-batch as done to Spark
            raise PipelineError("The job is stopping.")

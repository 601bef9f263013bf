"""The sink of the telemetry stream: a micro-batch fetched by Spark, made columns, drafted for the history, merged, kept."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core._internal import private_files
from producer_core.errors import ConfigError, PipelineError
from producer_core.pipeline.columns import typed
from producer_core.pipeline.merge_batch import SupersededBatch, merge, unseen
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.pipeline.slices import pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from producer_core.store import Store

Reached = Callable[[str], None]
_ENDING = 60.0
_FEW = 100
"""Records that are no telemetry, at the very beginning of a topic and without any that is: so many may be an accident."""


@dataclass(frozen=True)
class MergeResult:
    """What a run did: batches seen and merged, and records set aside because they are no telemetry we know, by their
    schema version (None: no telemetry at all, or of a shape that no version has)."""

    batches: int = 0
    merged: int = 0
    set_aside: int = 0
    versions: Mapping[int | None, int] = field(default_factory=dict)

    def __add__(self, other: MergeResult) -> MergeResult:
        versions = {
            version: self.versions.get(version, 0) + other.versions.get(version, 0)
            for version in (*self.versions, *other.versions)
        }
        return MergeResult(
            self.batches + other.batches,
            self.merged + other.merged,
            self.set_aside + other.set_aside,
            versions,
        )


class TelemetrySink:
    """What `foreachBatch` calls, on a thread of py4j. It keeps its own error, which Spark would hand on as text.

    `reached` hears where it is: "received", "drafted", "in the transaction", "merged" (the store's transaction is
    committed, Spark's checkpoint is not), "kept". Tests kill the process there.
    """

    def __init__(
        self,
        store: Store,
        aside: Path,
        history: ParquetHistory | None,
        told: Callable[[MergeResult], None],
        reached: Reached,
        *,
        options: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._aside, self._history = store, aside, history
        self._told, self._reached, self._options, self._clock = told, reached, options, clock
        self._busy = threading.Lock()  # held while a micro-batch is merged
        self._ending = False
        self.error: Exception | None = None

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        with self._busy:
            try:
                self._go_on()
                self._told(self._merge(records, batch_id))
            except Exception as error:
                self.error = error
                raise

    def end(self) -> None:
        """Take no more, and let the micro-batch, or the piece, under way come to its end."""
        self._ending = True
        if self._busy.acquire(timeout=_ENDING):
            self._busy.release()

    def _merge(self, records: DataFrame, batch_id: int) -> MergeResult:
        self._reached("received")
        query_id = str(records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        done = MergeResult()
        for number, (records_here, last) in enumerate(pieces(records, self._options), 1):
            self._go_on()
            aside = self._aside / f"{query_id}-{batch_id:08d}-{number:04d}.parquet"
            first = batch_id == 0 and number == 1
            # the store knows the micro-batch as merged with its last piece: a copy made before lacks the others
            done += self._piece(records_here, aside, query_id, batch_id if last else None, first=first)
        return done

    def _go_on(self) -> None:
        if self._ending:
            raise PipelineError("The job ends.")  # a return would tell Spark that this batch is done

    def _piece(
        self, records: pa.Table, aside: Path, query_id: str, batch_id: int | None, *, first: bool
    ) -> MergeResult:
        found = typed(value.as_py() for value in records["value"])
        versions = Counter(found.strange.values())
        if versions:
            if first and not found.batches.num_rows:
                _is_telemetry(versions)
            _set_aside(unknown(records, found.strange), aside)
        merged = self._add(found.batches, query_id, batch_id)
        return MergeResult(found.batches.num_rows, merged, len(found.strange), versions)

    def _add(self, known: Any, query_id: str, batch_id: int | None) -> int:
        while True:
            fresh = unseen(self._store, known)
            now = self._clock()
            draft = self._history.draft(fresh, now) if self._history and fresh.num_rows else None
            self._reached("drafted")
            try:
                added = merge(
                    self._store, fresh, query_id=query_id, batch_id=batch_id, now=now, reached=self._reached
                )
            except SupersededBatch:
                if self._history and draft:
                    self._history.drop(draft)
                continue
            self._reached("merged")
            if self._history and draft:
                self._history.keep(draft)
            self._reached("kept")
            return added


def unknown(records: pa.Table, strange: Mapping[int, int | None]) -> pa.Table:
    """What does not fit, as it stands on the topic: a newer schema, rows of another shape, or no telemetry at all."""
    import pyarrow as pa

    raw = records.take(pa.array(strange, pa.int64()))
    return raw.append_column("v", pa.array(strange.values(), pa.int32()))


def _is_telemetry(strange: Mapping[int | None, int]) -> None:
    """ConfigError where a topic of something else was named: set aside, all of it would be copied."""
    if strange.get(None, 0) >= _FEW:
        raise ConfigError(
            f"None of the first {sum(strange.values()):,} records is telemetry.",
            fix="Name the topic that producers have as telemetry_topic with --topic; nothing was copied.",
        )


def _set_aside(values: pa.Table, target: Path) -> None:
    """As Parquet on the driver, by the micro-batch's number, so that a repeated one replaces it; the records may be of
    any topic that was named by mistake, so they are for their owner's eyes."""
    from pyarrow import parquet

    private_files.make_folder(target.parent)
    draft = target.with_suffix(".draft")
    draft.touch(mode=0o600)
    parquet.write_table(values, draft, compression="zstd")
    draft.rename(target)

"""Process a micro-batch of the telemetry stream: fetch it, convert it to columns, draft it, merge it, keep the draft."""

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
from producer_core.pipeline.columns import to_table
from producer_core.pipeline.merge_batch import SupersededBatch, merge, unseen
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.pipeline.slices import pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from producer_core.store import Store

Reached = Callable[[str], None]
_END_TIMEOUT = 60.0
_MIN_FOREIGN = 100
"""The number of foreign records at the start of a topic without telemetry at which it counts as the wrong topic."""


@dataclass(frozen=True)
class MergeResult:
    """Count the batches that a run received and merged, and the records that it set aside.

    `versions` counts the records set aside by schema version; None marks records that are not telemetry, or have a
    shape that no version has.
    """

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
    """Handle the calls of `foreachBatch`, on a thread of py4j.

    The sink keeps its own error, because Spark would pass it on as text. `reached` is called at each step:
    "received", "drafted", "in the transaction", "merged" (the store's transaction is committed, Spark's checkpoint is
    not), "kept". Tests kill the process there.
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
        self._store, self._aside, self._history = store, aside, history
        self._on_merged, self._reached, self._options, self._clock = on_merged, reached, options, clock
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
            done += self._merge_piece(piece, aside, query_id, batch_id if last else None, first=first)
        return done

    def _check_running(self) -> None:
        if self._ending:
            # returning would report the micro-batch as done to Spark
            raise PipelineError("The job is stopping.")

    def _merge_piece(
        self, records: pa.Table, aside: Path, query_id: str, batch_id: int | None, *, first: bool
    ) -> MergeResult:
        found = to_table(value.as_py() for value in records["value"])
        versions = Counter(found.rejected.values())
        if versions:
            if first and not found.batches.num_rows:
                _check_is_telemetry(versions)
            _set_aside(raw_records(records, found.rejected), aside)
        merged = self._add(found.batches, query_id, batch_id)
        return MergeResult(found.batches.num_rows, merged, len(found.rejected), versions)

    def _add(self, batches: Any, query_id: str, batch_id: int | None) -> int:
        while True:
            fresh = unseen(self._store, batches)
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


def raw_records(records: pa.Table, rejected: Mapping[int, int | None]) -> pa.Table:
    """Return rejected records unchanged: a newer schema, rows of another shape, or no telemetry at all."""
    import pyarrow as pa

    raw = records.take(pa.array(rejected, pa.int64()))
    return raw.append_column("v", pa.array(rejected.values(), pa.int32()))


def _check_is_telemetry(rejected: Mapping[int | None, int]) -> None:
    """Raise ConfigError when the topic holds something else; otherwise all of it would be copied."""
    if rejected.get(None, 0) >= _MIN_FOREIGN:
        raise ConfigError(
            f"None of the first {sum(rejected.values()):,} records is telemetry.",
            fix="Set --topic to the producers' telemetry_topic; nothing was copied.",
        )


def _set_aside(values: pa.Table, target: Path) -> None:
    """Write records as Parquet on the driver, under the micro-batch's number, so that a repeated one replaces the file.

    Only the owner may read the file: the records may come from any topic that was named by mistake.
    """
    from pyarrow import parquet

    private_files.make_folder(target.parent)
    draft = target.with_suffix(".draft")
    draft.touch(mode=0o600)
    parquet.write_table(values, draft, compression="zstd")
    draft.rename(target)

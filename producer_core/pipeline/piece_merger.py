"""Merge a piece of a telemetry topic: convert it to columns, draft its history, merge it, and set aside what is no telemetry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core._internal import private_files
from producer_core.errors import ConfigError
from producer_core.pipeline.columns import to_table
from producer_core.pipeline.merge_batch import RecordPosition, SupersededBatch, merge, unseen
from producer_core.pipeline.merge_result import MergeResult
from producer_core.pipeline.parquet_history import ParquetHistory

if TYPE_CHECKING:
    import pyarrow as pa

    from producer_core.store import Store

Reached = Callable[[str], None]
_MIN_FOREIGN = 100
"""The number of foreign records at the start of a topic without telemetry at which it counts as the wrong topic."""


class PieceMerger:
    """Merges pieces that fit into memory, one at a time.

    `reached` is called at each step: "drafted", "in the transaction", "merged" (the store's transaction is committed),
    "kept". Tests kill the process there.
    """

    def __init__(
        self,
        store: Store,
        history: ParquetHistory | None,
        reached: Reached,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._history, self._reached, self._clock = store, history, reached, clock

    def merge(
        self, records: pa.Table, aside: Path, record: RecordPosition | None, *, first: bool
    ) -> MergeResult:
        """Merge the records, and write those that are no telemetry to `aside`. The first piece of a topic is checked.

        `record` writes the reader's position in the same transaction.
        """
        found = to_table(value.as_py() for value in records["value"])
        versions = Counter(found.rejected.values())
        if versions:
            if first and not found.batches.num_rows:
                _check_is_telemetry(versions)
            _set_aside(raw_records(records, found.rejected), aside)
        merged = self._add(found.batches, record)
        return MergeResult(found.batches.num_rows, merged, len(found.rejected), versions)

    def _add(self, batches: Any, record: RecordPosition | None) -> int:
        while True:
            fresh = unseen(self._store, batches)
            draft = self._history.draft(fresh, self._clock()) if self._history and fresh.num_rows else None
            self._reached("drafted")
            try:
                added = merge(self._store, fresh, record=record, reached=self._reached)
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
    """Write records as Parquet, under the piece's name, so that a repeated one replaces the file.

    Only the owner may read the file: the records may come from any topic that was named by mistake.
    """
    from pyarrow import parquet

    private_files.make_folder(target.parent)
    draft = target.with_suffix(".draft")
    draft.touch(mode=0o600)
    parquet.write_table(values, draft, compression="zstd")
    draft.rename(target)

"""Recognize a store whose file was replaced under a running process: batches that the process committed are missing.

The number of a producer's last batch in a store never decreases, because compaction, retention and migrations keep it. An
older copy has a lower number. A new file has none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from producer_core.store.merge import next_batch

if TYPE_CHECKING:
    import duckdb

    from producer_core.metrics.batch import Batch

_NEW = "The store was replaced by a file with no data from this producer. Dead letters stored until now may be missing."
_OLDER = "The store was replaced by an older copy. Dead letters stored since {} may be missing."
_SEEN = "SELECT max(seen_at) FROM producers WHERE producer_id = ?"


class CommittedBatches:
    """The numbers of the last batches that this process committed, and the replacements that are not reported yet."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._replaced: dict[str, str] = {}

    def find_replaced(
        self, connection: duckdb.DuckDBPyConnection, batches: Sequence[Batch]
    ) -> Mapping[str, str]:
        """Return a text for each producer of these batches whose committed batches are missing. Call it before the merge."""
        return {
            producer: _describe(connection, producer)
            for producer in dict.fromkeys(batch.producer_id for batch in batches)
            if next_batch(connection, producer) <= self._last.get(producer, -1)
        }

    def add(self, batches: Sequence[Batch], replaced: Mapping[str, str]) -> None:
        """Add batches after their transaction was committed."""
        self._replaced.update(replaced)
        for producer in replaced:
            self._last.pop(producer, None)
        for batch in batches:
            self._last[batch.producer_id] = max(self._last.get(batch.producer_id, -1), batch.sequence)

    def has(self, producer: str) -> bool:
        """Whether this process committed a batch of the producer."""
        return producer in self._last

    def take_replaced(self, producer: str) -> str | None:
        """Return the text of a replacement once."""
        return self._replaced.pop(producer, None)

    def forget(self) -> None:
        """Forget all numbers, after a loss that was reported in another way."""
        self._last.clear()


def _describe(connection: duckdb.DuckDBPyConnection, producer: str) -> str:
    row = connection.execute(_SEEN, [producer]).fetchone()
    if row is None or row[0] is None:
        return _NEW
    return _OLDER.format(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row[0])))

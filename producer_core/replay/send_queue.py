"""The records of a transactional replay that are not sent yet, as rows and as columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.record_batch import RecordBatch

_BYTES = 8 * 1024 * 1024
"""Maximum bytes of keys and values in one transaction; a single larger record is sent alone."""


class SendQueue:
    """Rows, followed by batches of columns. Iterating yields the rows."""

    def __init__(self) -> None:
        self._rows: deque[ReplayRecord] = deque()
        self._batches: deque[RecordBatch] = deque()

    def __len__(self) -> int:
        return len(self._rows) + sum(map(len, self._batches))

    def __iter__(self) -> Iterator[ReplayRecord]:
        return iter(self._rows)

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self._rows) + sum(batch.size for batch in self._batches)

    @property
    def has_only_columns(self) -> bool:
        return bool(self._batches) and not self._rows

    def add_batch(self, batch: RecordBatch) -> None:
        self._batches.append(batch)

    def add(self, records: Sequence[ReplayRecord]) -> None:
        """Add rows after all others, which are sent as rows too, in their order."""
        self.to_rows()
        self._rows += records

    def to_rows(self) -> None:
        """Continue with single records: only batches without any failure are sent as columns."""
        while self._batches:
            self._rows += self._batches.popleft()

    def put_back(self, records: Sequence[ReplayRecord]) -> None:
        """Add rows before all others."""
        self._rows.extendleft(reversed(records))

    def keep(self, condition: Callable[[ReplayRecord], bool]) -> None:
        """Remove the rows that do not meet the condition."""
        self._rows = deque(filter(condition, self._rows))

    def take_all(self) -> list[ReplayRecord]:
        self.to_rows()
        records = list(self._rows)
        self._rows.clear()
        return records

    def next_rows(self, count: int) -> list[ReplayRecord]:
        """Take the rows of one transaction, at most `count`."""
        taken: list[ReplayRecord] = []
        size = 0
        while self._rows and len(taken) < count:
            size += self._rows[0].size
            if taken and size > _BYTES:
                break
            taken.append(self._rows.popleft())
        return taken

    def next_columns(self, count: int) -> RecordBatch:
        """Take the columns of one transaction, at most `count` records; call it only if no rows are left."""
        whole = RecordBatch.joined(self._batches)
        self._batches.clear()
        batch = whole.first(count, _BYTES)
        if len(batch) < len(whole):
            self._batches.append(whole[len(batch) :])
        return batch

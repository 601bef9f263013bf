"""A journal in memory, with the behaviour of the real one but for surviving anything."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Self

from producer_core.errors import JournalError, JournalFull
from producer_core.journal.record import Record, encode
from producer_core.messages import new_session


class MemoryJournal:
    """For tests. `reopened()` gives what a new process would find."""

    def __init__(self, *, max_bytes: int = 4 << 30, session: uuid.UUID | None = None) -> None:
        self.session = session or new_session()
        self.next_sequence = 0
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # guards the fields below
        self._records: dict[int, Record] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._size = 0
        self._next = 0
        self._closed = False

    def append(self, record: Record) -> None:
        if not record.dedup_topic or record.checksum is None:
            record = record._replace(dedup_topic=record.topic)
        size = len(encode(record))
        with self._lock:
            self._check()
            if self._size + size > self._max_bytes:
                raise JournalFull(f"The journal has reached its bound of {self._max_bytes:,} bytes.")
            self._records[record.seq] = record
            self._size += size
            self._next = max(self._next, record.seq + 1)

    def settle(self, seqs: Iterable[int], offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        with self._lock:
            self._check()
            for seq in seqs:
                record = self._records.pop(seq, None)
                self._size -= len(encode(record)) if record else 0
            self._offsets.update(offsets or {})

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        with self._lock:
            return MappingProxyType(dict(self._offsets))

    def read(self, after: int = -1) -> Iterator[Record]:
        return self.cursor(after).more()

    def cursor(self, after: int = -1) -> MemoryCursor:
        return MemoryCursor(self, after)

    def next_of(self, after: int, done: set[int]) -> Record | None:
        """For the cursor: what was appended first of what it has not given."""
        with self._lock:
            self._check()
            return next((one for seq, one in self._records.items() if seq > after and seq not in done), None)

    def is_settled(self, seq: int) -> bool:
        return seq not in self._records

    def unsettled(self) -> int:
        return len(self._records)

    def size(self) -> int:
        return self._size

    def sync(self) -> None:
        self._check()

    def close(self) -> None:
        self._closed = True

    def reopened(self) -> MemoryJournal:
        """What is left after a crash of its owner."""
        again = MemoryJournal(max_bytes=self._max_bytes, session=self.session)
        with self._lock:
            again._records, again._offsets = dict(self._records), dict(self._offsets)
            again._size, again.next_sequence = self._size, self._next
            again._next = self._next
        return again

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise JournalError("The journal is closed.")


class MemoryCursor:
    """As the real one."""

    def __init__(self, journal: MemoryJournal, after: int) -> None:
        self._journal = journal
        self._after = after
        self._done: set[int] = set()

    def more(self) -> Iterator[Record]:
        while (found := self._journal.next_of(self._after, self._done)) is not None:
            self._done.add(found.seq)
            yield found

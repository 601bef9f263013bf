"""A cursor that reads the unsettled records of a journal and can continue later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from producer_core.delivery.journal.record import JournalRecord, decode
from producer_core.delivery.journal.segment import Segment
from producer_core.errors import JournalError


class JournalSlice(NamedTuple):
    """A section of one segment to read: its end offset and its records."""

    segment: Segment
    end: int
    contents: Iterator[tuple[int, bytes]]


class JournalSource(Protocol):
    """The methods of the journal that a cursor needs."""

    def next_slice(self, last: JournalSlice | None, after: int) -> JournalSlice | None: ...
    def unwritten(self) -> list[tuple[int, bytes]]: ...
    def is_settled(self, seq: int) -> bool: ...


class JournalCursor:
    """Read unsettled records in append order, from one thread.

    With several writing threads, append order can differ from sequence order. A record can appear twice: when its
    segment is rewritten between two reads, or when a full disk kept it in memory.
    """

    def __init__(self, journal: JournalSource, after: int) -> None:
        self._journal = journal
        self._after = after
        self._last: JournalSlice | None = None

    def more(self) -> Iterator[JournalRecord]:
        """Yield the unsettled records not yet returned, up to the current end. Exhaust the iterator before the next call."""
        return map(decode, self.contents())

    def contents(self) -> Iterator[bytes]:
        """Yield the same records in their encoded form."""
        while (journal_slice := self._journal.next_slice(self._last, self._after)) is not None:
            self._last = journal_slice
            yield from self._unsettled(journal_slice.contents)
        yield from self._unsettled(
            (seq, content) for seq, content in self._journal.unwritten() if seq > self._after
        )

    def _unsettled(self, contents: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
        for seq, content in contents:
            if not self._journal.is_settled(seq):
                yield content


def slice_of(segment: Segment, after: int, start: int, end: int) -> JournalSlice:
    """Return the slice between two offsets of the segment. Call under the journal's lock."""
    return JournalSlice(segment, end, _contents(segment, segment.duplicate_handle(), after, start, end))


def _contents(segment: Segment, handle: int, after: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    try:
        yield from segment.read(handle, after, start, end)
    except OSError as error:
        raise JournalError(f"The journal file {segment.path} cannot be read: {error.strerror}.") from error
    finally:
        os.close(handle)

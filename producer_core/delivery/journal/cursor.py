"""A cursor: a place in the journal from which somebody reads on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from producer_core.delivery.journal.record import JournalRecord, decode
from producer_core.delivery.journal.segment import Segment
from producer_core.errors import JournalError


class JournalSlice(NamedTuple):
    """A part of a file that is read, and where it ends."""

    segment: Segment
    end: int
    contents: Iterator[tuple[int, bytes]]


class JournalSource(Protocol):
    """What a cursor needs of the journal."""

    def portion_after(self, last: JournalSlice | None, after: int) -> JournalSlice | None: ...
    def unwritten(self) -> list[tuple[int, bytes]]: ...
    def is_settled(self, seq: int) -> bool: ...


class JournalCursor:
    """For one thread. The order is that of appending, which threads may make differ from that of the sequences.

    A record may come twice where its file is written anew meanwhile, or when a full disk held it in memory.
    """

    def __init__(self, journal: JournalSource, after: int) -> None:
        self._journal = journal
        self._after = after
        self._last: JournalSlice | None = None

    def more(self) -> Iterator[JournalRecord]:
        """Unsettled records that have not been given yet, up to what is there at the end; read it to its end."""
        return map(decode, self.contents())

    def contents(self) -> Iterator[bytes]:
        """The same, as they are encoded."""
        while (portion := self._journal.portion_after(self._last, self._after)) is not None:
            self._last = portion
            yield from self._open(portion.contents)
        yield from self._open(
            (seq, content) for seq, content in self._journal.unwritten() if seq > self._after
        )

    def _open(self, contents: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
        for seq, content in contents:
            if not self._journal.is_settled(seq):
                yield content


def portion(segment: Segment, after: int, start: int) -> JournalSlice:
    """From a place of a file on to where it ends now; under the journal's lock."""
    return JournalSlice(
        segment, segment.size, _contents(segment, segment.handle(), after, start, segment.size)
    )


def _contents(segment: Segment, handle: int, after: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    try:
        yield from segment.read(handle, after, start, end)
    except OSError as error:
        raise JournalError(f"The journal's {segment.path} cannot be read: {error.strerror}.") from error
    finally:
        os.close(handle)

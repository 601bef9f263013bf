"""The segments: all files of records in their order, of which the last one is written."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from producer_core.delivery.journal.folder import JournalFolder
from producer_core.delivery.journal.frame import FrameDamage
from producer_core.delivery.journal.segment import Segment

logger = logging.getLogger(__name__)

_NAME = re.compile(r"\d{20}\.journal")
_SPARSE = 0.5
"""A file of which no larger part is open is worth writing anew when there is no room."""


class SegmentList:
    """Guarded by the journal's lock."""

    def __init__(self, folder: JournalFolder, *, segment_bytes: int, durable: bool) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._all: list[Segment] = []
        self._number = -1  # the highest that a file was named after
        self.size = 0

    def recover(self, damaged: Callable[[Path, FrameDamage, bytes], bool]) -> int:
        """Learn what is there; a number above every sequence that was found."""
        above = 0
        for path in sorted(path for path in self._folder.path.iterdir() if _NAME.fullmatch(path.name)):
            segment = Segment(path, self._folder.seed(path.name))
            self._all.append(segment)
            segment.recover(damaged)
            self.size += segment.size
            self._number = segment.number
            above = max(above, segment.sequences.highest + 1, segment.number)
        return above

    @property
    def active(self) -> Segment | None:
        return self._all[-1] if self._all else None

    @property
    def unsettled(self) -> int:
        """Counted by the segments, so that an interrupt in the middle of a write cannot put it wrong."""
        return sum(segment.unsettled for segment in self._all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    def write(self, contents: Sequence[tuple[int, bytes]]) -> None:
        """All of them or none. OSError when they cannot be written."""
        first = contents[0][0]
        segment = self._room_at(first)
        try:
            self.size += segment.add(contents)
        except OSError:
            if not segment.size or segment.unsettled:
                raise
            self.size += self._rotate(first).add(contents)  # its room was taken by what is settled

    def settle(self, ranges: Iterable[tuple[int, int]]) -> None:
        for start, end in ranges:
            for segment in self._all:
                segment.settle(start, end)

    def holds(self, seq: int) -> bool:
        """Whether this one is in a file and open."""
        for segment in reversed(self._all):
            if seq in segment.sequences:
                return seq not in segment.settled
        return False

    def has_any(self, start: int, end: int) -> bool:
        """Return whether a file has a record of these sequences, settled or not."""
        return any(segment.sequences.overlap(start, end) for segment in self._all)

    def settled(self) -> list[tuple[int, int]]:
        """What is done and still in a file."""
        return sorted(span for segment in self._all for span in segment.settled)

    def sync(self) -> None:
        if self._durable and self.active is not None:
            self.active.sync()

    def delete_settled(self, *, all_of_them: bool = False) -> None:
        """Delete the files in which nothing is open; the one that is written only on demand."""
        for segment in self._all[: None if all_of_them else -1]:
            if not segment.unsettled:
                with contextlib.suppress(OSError):  # a read-only disk: the next time
                    segment.delete()
                    self._all.remove(segment)
                    self.size -= segment.size

    def make_room(self) -> None:
        """Free what settled messages take: delete what is done, and take the done ones out of sparse files."""
        self.delete_settled(all_of_them=True)
        for place, segment in enumerate(self._all[:-1]):
            if segment.unsettled <= _SPARSE * len(segment.sequences):
                try:
                    self._all[place] = shorter = segment.without_settled()
                except OSError as error:
                    logger.warning("journal segment cannot be shortened", extra={"error": str(error)})
                    return
                self.size += shorter.size - segment.size
                segment.close()

    def close(self) -> None:
        for segment in self._all:
            segment.close()

    def _room_at(self, seq: int) -> Segment:
        if self._all:
            active = self._all[-1]
            if active.size < self._segment_bytes and not active.broken:
                return active
        return self._rotate(seq)

    def _rotate(self, seq: int) -> Segment:
        if self.active is not None and not self.active.broken:
            self.sync()
        self.delete_settled(all_of_them=True)
        number = max(seq, self._number + 1)
        path = self._folder.path / f"{number:020d}.journal"
        segment = Segment(path, self._folder.seed(path.name), create=True)
        try:
            if self._durable:
                self._folder.sync()
        except OSError:
            segment.delete()
            raise
        self._all.append(segment)
        self._number = number
        return segment

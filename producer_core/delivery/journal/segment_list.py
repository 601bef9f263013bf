"""All segments of a journal in order. The last one is the active segment, to which records are appended."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.journal.folder import JournalFolder
from producer_core.delivery.journal.frame import FrameDamage
from producer_core.delivery.journal.mapped_end import MappedEnd
from producer_core.delivery.journal.segment import Segment

logger = queued_logger(__name__)

_NAME = re.compile(r"\d{20}\.journal")
_SPARSE_SHARE = 0.5
"""The highest share of unsettled records at which a segment is rewritten to make room."""


class SyncTicket(NamedTuple):
    """A segment, and the offset below which its bytes must be on disk."""

    segment: Segment
    end: int

    def wait(self) -> None:
        """Wait for the sync, and raise OSError when it failed.

        Call it without the journal's lock: a signal handler of the syncing thread may need the lock before its sync ends.
        """
        self.segment.group_sync.wait(self.end)


class SegmentList:
    """Manage the segments of a journal. Guarded by the journal's lock."""

    def __init__(
        self, folder: JournalFolder, *, segment_bytes: int, durable: bool, mapped: bool = False
    ) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._durable = durable
        self.mapped = mapped
        self._segments: list[Segment] = []
        self._number = -1  # the highest number in a file name
        self._inactive_bytes = 0  # in all segments but the active one

    def recover(self, on_damage: Callable[[Path, FrameDamage, bytes], bool]) -> int:
        """Read the segments on disk. Return a number above every sequence found."""
        above = 0
        paths = sorted(path for path in self._folder.path.iterdir() if _NAME.fullmatch(path.name))
        for path in paths:
            segment = self._segment(path)
            self._segments.append(segment)
            segment.recover(on_damage, last=path == paths[-1])
            self._number = segment.number
            above = max(above, segment.sequences.highest + 1, segment.number)
        self._measure()
        return above

    @property
    def size(self) -> int:
        segments = self._segments  # without the property `active`, for speed
        return self._inactive_bytes + (segments[-1].size if segments else 0)

    @property
    def active(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    @property
    def unsettled(self) -> int:
        """Return the sum over the segments. A separate counter could be wrong after an interrupt during a write."""
        return sum(segment.unsettled for segment in self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def write(self, contents: Sequence[tuple[int, bytes]]) -> None:
        """Append all records or none. Raise OSError when they cannot be written."""
        first = contents[0][0]
        segment = self._writable_segment(first)
        try:
            _add(segment, contents)
        except OSError:
            if not segment.size or segment.unsettled:
                raise
            _add(self._rotate(first), contents)  # rotating deletes the settled records

    def mapped_end(self, room: int) -> MappedEnd | None:
        """Return the memory to which records may be written without `write`, up to this number of bytes in total."""
        if self.active is None:
            return None
        return self.active.mapped_end(self.limit(room))

    def limit(self, room: int) -> int:
        """Return the size of the active segment at which a record needs `write`, if the journal has this room in bytes."""
        return 0 if self.active is None else min(self._segment_bytes, self.active.size + room)

    def settle(self, ranges: Iterable[tuple[int, int]]) -> None:
        for start, end in ranges:
            for segment in self._segments:
                segment.settle(start, end)

    def has_unsettled(self, seq: int) -> bool:
        """Return whether a segment has this record and it is unsettled."""
        for segment in reversed(self._segments):
            if seq in segment.sequences:
                return seq not in segment.settled
        return False

    def has_records(self, start: int, end: int) -> bool:
        """Return whether a segment has a record with one of these sequences, settled or not."""
        return any(segment.sequences.overlap(start, end) for segment in self._segments)

    @property
    def has_groups(self) -> bool:
        return any(segment.has_groups for segment in self._segments)

    def settled(self) -> list[tuple[int, int]]:
        """Return the settled sequences that are still in a file."""
        return sorted(span for segment in self._segments for span in segment.settled)

    def ticket(self) -> SyncTicket:
        """Return the ticket of the last write."""
        return SyncTicket(self._segments[-1], self._segments[-1].size)

    def unsynced(self) -> SyncTicket | None:
        """Return the ticket of the last write, or None when there is no sync to wait for."""
        return None if self.active is None or self.active.is_synced else self.ticket()

    def unsynced_full(self) -> SyncTicket | None:
        """Return the same if the next write starts a new segment: wait for it first."""
        is_full = self.active is not None and self.active.size >= self._segment_bytes
        return self.unsynced() if is_full else None

    def delete_settled(self, *, include_active: bool = False) -> None:
        """Delete the segments without unsettled records, the active one only on request."""
        for segment in self._segments[: None if include_active else -1]:
            if not segment.unsettled:
                with contextlib.suppress(OSError):  # for example a read-only disk: retried at the next call
                    segment.delete()
                    self._segments.remove(segment)
        self._measure()

    def make_room(self) -> None:
        """Free the space of settled messages: delete settled segments and rewrite sparse ones."""
        self.delete_settled(include_active=True)
        for index, segment in enumerate(self._segments[:-1]):
            if segment.unsettled <= _SPARSE_SHARE * len(segment.sequences):
                try:
                    self._segments[index] = segment.without_settled()
                except OSError as error:
                    logger.warning(**with_fields("journal segment cannot be truncated", error=str(error)))
                    break
                segment.close()
        self._measure()

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def _measure(self) -> None:
        self._inactive_bytes = sum(segment.size for segment in self._segments[:-1])

    def _segment(self, path: Path, *, create: bool = False) -> Segment:
        seed = self._folder.seed(path.name)
        return Segment(path, seed, create=create, durable=self._durable, mapped=self.mapped)

    def _writable_segment(self, seq: int) -> Segment:
        if self._segments:
            active = self._segments[-1]
            if active.size < self._segment_bytes and not active.group_sync.failed:
                return active
        return self._rotate(seq)

    def _rotate(self, seq: int) -> Segment:
        if self.active is not None:
            self.active.finish()
        self.delete_settled(include_active=True)
        number = max(seq, self._number + 1)
        path = self._folder.path / f"{number:020d}.journal"
        segment = self._segment(path, create=True)
        try:
            if self._durable:
                self._folder.sync()
        except OSError:
            segment.delete()
            raise
        self._segments.append(segment)
        self._measure()
        self._number = number
        return segment


def _add(segment: Segment, contents: Sequence[tuple[int, bytes]]) -> None:
    if len(contents) == 1:
        segment.add_one(*contents[0])
    else:
        segment.add(contents)

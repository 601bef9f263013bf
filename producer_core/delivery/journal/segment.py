"""A segment: one append-only file of records, deleted when all of them are settled."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from producer_core.delivery.journal.file_writes import replace, write_whole
from producer_core.delivery.journal.frame import (
    HEADER_SIZE,
    FrameDamage,
    frame,
    frames,
    header,
    scan,
    without_free_space,
)
from producer_core.delivery.journal.group_sync import GroupSync
from producer_core.delivery.journal.mapped_end import MappedEnd
from producer_core.delivery.journal.ranges import Ranges
from producer_core.delivery.journal.record import sequence

_INDEX_STEP_BYTES = 1 << 18
"""Distance between two index entries. A reader starts at the nearest one."""
_PREALLOCATE_BYTES = (1 << 20, 1 << 16)
"""Disk space reserved ahead of time: most syncs need not write the file's size, and records are written through memory."""
_ALLOCATION_UNIT = 1 << 16
"""A file with preallocated space has a multiple of this size. Zeros at the end of other files are damage."""


class Segment:
    """Store records in one file. Guarded by the journal's lock, except `group_sync` and `read`."""

    def __init__(
        self, path: Path, seed: int, *, create: bool = False, durable: bool = False, mapped: bool = False
    ) -> None:
        self.path = path
        self._seed = seed
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        self._file: int | None = os.open(path, flags, 0o600)
        self.size = 0
        self.sequences = Ranges()
        self.settled = Ranges()
        self.group_sync = GroupSync(self._sync_file, lambda: self.size)
        self._durable = durable
        self._maps = mapped  # whether single records are written through memory, until that fails once
        self._mapped: MappedEnd | None = None
        self._mapped_end = 0
        self._allocated_end = 0
        self._index: list[tuple[int, int]] = []  # (highest sequence so far, offset), both ascending
        self._next_index_offset = 0  # the next record at or above this offset gets an index entry

    @property
    def unsettled(self) -> int:
        return len(self.sequences) - len(self.settled)

    @property
    def number(self) -> int:
        return int(self.path.stem)

    @property
    def readable_end(self) -> int:
        """Return the offset up to which records may be read: a record that must be synced is not accepted before."""
        return self.group_sync.synced if self._durable else self.size

    @property
    def in_place(self) -> bool:
        """Return whether the file still has its name."""
        return self._file is not None and os.fstat(self._file).st_nlink > 0

    def add(self, contents: Sequence[tuple[int, bytes]]) -> int:
        """Append records in one write and return their size in bytes. OSError leaves the file unchanged."""
        assert self._file is not None, "an open segment"
        start = offset = self.size
        parts = []
        for _, content in contents:
            parts.append(data := frame(content, self._seed, offset))
            offset += len(data)
        if self._durable and offset > self._allocated_end:
            self._preallocate(offset)
        try:
            write_whole(self._file, b"".join(parts), start)
        except OSError:
            self._release_space()
            raise
        self.size = offset
        if start >= self._next_index_offset:
            self._add_index_entry(start)
        for seq, _ in contents:
            self.sequences.add(seq, seq + 1)
        return offset - start

    def add_one(self, seq: int, content: bytes) -> int:
        """Append one record, through memory if possible. OSError leaves the file unchanged."""
        start = self.size
        end = start + HEADER_SIZE + len(content)
        if end > self._mapped_end:
            self._map(end)
        if (mapped := self._mapped) is None:
            return self.add(((seq, content),))
        mapped.write(header(content, self._seed, start), content, start)
        self.size = end
        if start >= self._next_index_offset:
            self._add_index_entry(start)
        self.sequences.add(seq, seq + 1)
        return end - start

    def settle(self, start: int, end: int) -> None:
        for low, high in self.sequences.overlap(start, end):
            self.settled.add(low, high)

    def sync(self) -> None:
        """Sync all records. Raise OSError when the sync of one of them failed, now or earlier."""
        self.group_sync.wait(self.size)

    def finish(self) -> None:
        """Sync all records and release the preallocated space. Nothing more is written to the file.

        After a failed sync there is nothing left to sync: no record since then was accepted.
        """
        synced = self._durable and not self.group_sync.failed
        if synced:
            self.sync()
        if self._trim() and synced and self._file is not None:
            # Also the new size: zeros at the end of a file that is not the last one are damage.
            os.fdatasync(self._file)

    def duplicate_handle(self) -> int:
        """Return a file handle for one reader. It stays valid when the file is deleted."""
        assert self._file is not None, "an open segment"
        return os.dup(self._file)

    def read(self, handle: int, after: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield sequence and content of each record above `after` between two offsets of the file."""
        index = bisect_right(self._index, (after, 1 << 62)) - 1
        start = max(start, self._index[index][1] if index >= 0 else 0)
        for found in scan(handle, start, end, self._seed):
            if (seq := sequence(found.content)) > after:
                yield seq, found.content

    def recover(self, on_damage: Callable[[Path, FrameDamage, bytes], bool], *, last: bool = True) -> None:
        """Read the file's sequences. `on_damage` returns whether a damaged end may be cut off.

        Zeros at the end of the `last` segment are not damage if its writer preallocated space.
        """
        data = self.path.read_bytes()
        for found in frames(data, self._seed):
            if not isinstance(found, FrameDamage):
                self._add_sequence(sequence(found.content), found.start)
            elif found.last:
                self._recover_end(data, found, on_damage, preallocated=last and _is_preallocated(data))
                break
            else:
                on_damage(self.path, found, data[found.start : found.end])
            self.size = found.end
        self.group_sync.synced = self.size

    def _recover_end(
        self, data: bytes, damage: FrameDamage, on_damage: Callable[[Path, FrameDamage, bytes], bool], *, preallocated: bool
    ) -> None:  # fmt: skip
        """Cut off the damaged end. Without room for a copy of it, cut off only the zeros after it."""
        assert self._file is not None, "an open segment"
        damaged = data[damage.start :]
        if preallocated:
            damaged = without_free_space(damaged)
        end = damage.start + len(damaged)
        if damaged and not on_damage(self.path, damage._replace(end=end), damaged):
            self.size = damage.start + len(damaged.rstrip(b"\0"))
        os.ftruncate(self._file, self.size)

    def without_settled(self) -> Segment:
        """Replace the file atomically by one without settled records. OSError leaves this one in place.

        Records whose sync failed are not kept either: they were not accepted.
        """
        handle = self.duplicate_handle()
        try:
            kept = [
                (seq, content)
                for seq, content in self.read(handle, -1, 0, self.readable_end)
                if seq not in self.settled
            ]
        finally:
            os.close(handle)
        offset, parts = 0, []
        for _, content in kept:
            parts.append(frame(content, self._seed, offset))
            offset += len(parts[-1])
        replace(self.path, b"".join(parts))
        rewritten = Segment(self.path, self._seed, durable=self._durable)
        for (seq, _), part in zip(kept, parts, strict=True):
            rewritten._add_sequence(seq, rewritten.size)
            rewritten.size += len(part)
        rewritten.group_sync.synced = rewritten.size
        return rewritten

    def delete(self) -> None:
        """Delete the file. OSError leaves the segment as it is."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        self._trim()
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _map(self, end: int) -> None:
        """Allocate and map space up to this offset or beyond. Without space, records are written with system calls."""
        self._unmap()
        if self._maps and self._file is not None:
            if end > self._allocated_end:
                self._preallocate(end)
            with contextlib.suppress(OSError, ValueError):  # ValueError: another process cut the file off
                if self._allocated_end:
                    self._mapped = MappedEnd(self._file, self.size, self._allocated_end)
                    self._mapped_end = self._allocated_end
            self._maps = self._mapped is not None

    def _unmap(self) -> None:
        mapped, self._mapped, self._mapped_end = self._mapped, None, 0
        if mapped is not None:
            mapped.close()

    def _trim(self) -> bool:
        """Release the preallocated space after the last record. Return whether there was any."""
        preallocated = self._file is not None and self._allocated_end > self.size
        if preallocated:
            self._release_space()
        self._unmap()
        return preallocated

    def _release_space(self) -> None:
        """Cut off everything after the last record. A write through memory to what is cut off would end the process."""
        assert self._file is not None, "an open segment"
        self._unmap()
        self._allocated_end = 0
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self.size)

    def _sync_file(self) -> None:
        """Sync the file. The segment may be closed during the call: settled records need no sync, and close() syncs."""
        file = self._file
        try:
            if file is not None:
                os.fdatasync(file)
        except OSError:
            if self._file is not None:
                raise

    def _preallocate(self, end: int) -> None:
        assert self._file is not None, "an open segment"
        for ahead in _PREALLOCATE_BYTES:
            allocated_end = -(-(end + ahead) // _ALLOCATION_UNIT) * _ALLOCATION_UNIT
            try:
                os.posix_fallocate(self._file, self.size, allocated_end - self.size)
            except OSError:  # without preallocation, each write allocates its own space
                self._release_space()  # a full disk allocates a part of it
            else:
                self._allocated_end = allocated_end
                return

    def _add_sequence(self, seq: int, offset: int) -> None:
        if offset >= self._next_index_offset:
            self._add_index_entry(offset)
        self.sequences.add(seq, seq + 1)

    def _add_index_entry(self, offset: int) -> None:
        """Add an index entry: records with sequences not seen so far start at this offset."""
        self._index.append((self.sequences.highest, offset))
        self._next_index_offset = offset + _INDEX_STEP_BYTES


def _is_preallocated(data: bytes) -> bool:
    """Return whether the writer of this file had preallocated its end."""
    return len(data) % _ALLOCATION_UNIT == 0 and data.endswith(b"\0")

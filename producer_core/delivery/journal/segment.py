"""A segment: one append-only file of records, deleted when all of them are settled."""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from producer_core.delivery.journal.deferred_writes import DeferredWrites
from producer_core.delivery.journal.file_writes import OpenFile, replace
from producer_core.delivery.journal.frame import (
    HEADER_SIZE,
    FrameDamage,
    frame,
    frames,
    scan,
    without_free_space,
)
from producer_core.delivery.journal.group_sync import GroupSync
from producer_core.delivery.journal.mapped_end import MappedEnd
from producer_core.delivery.journal.ranges import Ranges, ranges_of
from producer_core.delivery.journal.record import sequence
from producer_core.delivery.journal.record_group import group, is_group, records

_INDEX_STEP_BYTES = 1 << 18
"""Distance between two index entries. A reader starts at the nearest one."""
_PREALLOCATE_BYTES = (1 << 20, 1 << 16)
"""Disk space reserved ahead of time: most syncs need not write the file's size, and records are written through memory."""
_RETRY_BYTES = 1 << 18
"""Bytes that are written with system calls after an attempt to map the end failed."""
_NEVER = 1 << 62
_ALLOCATION_UNIT = 1 << 16
"""A file with preallocated space has a multiple of this size. Zeros at the end of other files are damage."""


class Segment:
    """Store records in one file. Guarded by the journal's lock, except `group_sync` and `read`."""

    def __init__(
        self, path: Path, seed: int, *, create: bool = False, durable: bool = False, mapped: bool = False
    ) -> None:
        self.path = path
        self._seed = seed
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        self._file: OpenFile | None = OpenFile(path, flags)
        self._size = 0  # while the end is mapped, `size` is that of `_mapped`
        self._sequences = Ranges()
        self.settled = Ranges()
        self.group_sync = GroupSync(self._sync_file, lambda: self.size)
        self._durable = durable
        self._deferred = (
            DeferredWrites()
        )  # if durable: records of the allocated space that the next sync writes
        self.has_groups = False
        self._mapped: MappedEnd | None = None
        # The size from which on single records are written through memory.
        self._maps_from = 0 if mapped else _NEVER
        self._runs: tuple[tuple[int, int], ...] = ()  # written through memory, and not in `_sequences` yet
        self._allocated_end = 0
        self._index: list[tuple[int, int]] = []  # (highest sequence so far, offset), both ascending
        self._next_index_offset = 0  # the next record at or above this offset gets an index entry

    @property
    def size(self) -> int:
        return self._size if (mapped := self._mapped) is None else mapped.size

    @property
    def sequences(self) -> Ranges:
        # No call between a comparison and the assignment after it, so that no signal handler writes in between.
        if (mapped := self._mapped) is not None and mapped.first != mapped.next:
            self._runs, mapped.first = (*self._runs, (mapped.first, mapped.next)), mapped.next
        while runs := self._runs:
            run = runs[0]
            self._sequences.add(*run)
            if self._runs and self._runs[0] is run:
                self._runs = self._runs[1:]
        return self._sequences

    @property
    def unsettled(self) -> int:
        """Return the number of unsettled records. Without the journal's lock, it can be too high for a moment."""
        settled, mapped = len(self.settled), self._mapped
        run = 0 if mapped is None else mapped.next - mapped.first
        runs = sum(end - start for start, end in self._runs)
        return run + runs + len(self._sequences) - settled

    @property
    def number(self) -> int:
        return int(self.path.stem)

    @property
    def readable_end(self) -> int:
        """Return the offset up to which records may be read: a record that must be synced is not accepted until then."""
        return self.group_sync.synced if self._durable else self.size

    @property
    def in_place(self) -> bool:
        """Return whether the file still has its name."""
        return self._file is not None and os.fstat(self._file.number).st_nlink > 0

    def add(self, contents: Sequence[tuple[int, bytes]]) -> None:
        """Append records, several under one checksum, in one write. OSError leaves the file unchanged.

        If the records must be synced, the sync writes them. It needs no space for that: this method has allocated it.
        """
        start = self._defer(contents) if self._durable else None
        if start is None:
            start = self._write(contents)
        if start >= self._next_index_offset:
            self._add_index_entry(start)
        if len(contents) == 1:
            self.sequences.add(seq := contents[0][0], seq + 1)
            return
        self.has_groups = True
        for low, high in ranges_of([seq for seq, _ in contents]):
            self.sequences.add(low, high)

    def defer_one(self, seq: int, content: bytes, limit: int) -> int:
        """Append one record, which the next sync writes, up to this size of the file. Return the size, or 0 if `add` must do it."""
        while True:
            start = self._size
            end = start + HEADER_SIZE + len(content)
            if (
                end > min(limit, self._allocated_end)
                or start >= self._next_index_offset
                or self.group_sync.failed
            ):
                return 0
            data = frame(content, self._seed, start)
            if self._file is None:  # closed by a signal handler
                return 0
            if self._size == start:  # see _defer
                self._size = end
                self._deferred.append((start, data))
                self._sequences.add(seq, seq + 1)
                return end

    def _defer(self, contents: Sequence[tuple[int, bytes]]) -> int | None:
        """Append records that the next sync writes. Return their offset, or None if there is no allocated space."""
        while True:
            start = self._size
            data = self._framed(contents, start)
            end = start + len(data)
            if end > self._allocated_end:
                self._preallocate(end)
                if end > self._allocated_end:
                    return None
            if self._file is None:
                raise ValueError("The segment was closed by a signal handler.")
            # Otherwise a signal handler has written. No call between the checks and `append`.
            if self._size == start:
                self._size = end
                self._deferred.append((start, data))
                return start

    def _write(self, contents: Sequence[tuple[int, bytes]]) -> int:
        """Append records with a system call, and return their offset."""
        assert self._file is not None, "an open segment"
        if self._durable:
            self._deferred.write(
                self._file.number
            )  # so that a killed process leaves no gap before these records
        while True:
            start = self.size
            data = self._framed(contents, start)
            try:
                whole = self._write_at(start, data)
            except OSError:
                self._release_space()
                raise
            # Otherwise a signal handler has written, too. No call between a check and the assignment after it.
            if not whole:
                continue
            if (mapped := self._mapped) is None:
                if self._size == start:
                    self._size = start + len(data)
                    return start
            elif mapped.base + mapped.position == start:
                mapped.position = start + len(data) - mapped.base
                return start

    def _write_at(self, start: int, data: bytes) -> bool:
        """Write bytes at this end of the file. Return False if a signal handler has written at the same offset before."""
        left, offset = memoryview(data), start
        while left:
            file, mapped = self._file, self._mapped
            if file is None:
                raise ValueError("The segment was closed by a signal handler.")
            # No call between this check and the write.
            if (self._size if mapped is None else mapped.base + mapped.position) != start:
                return False
            count = os.pwrite(file.number, left, offset)
            if count == 0:  # after a short write, the second attempt raises the reason
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            offset += count
            left = left[count:]
        return True

    def _framed(self, contents: Sequence[tuple[int, bytes]], offset: int) -> bytes:
        """Return the frames of these records for this offset of the file."""
        if len(contents) == 1:
            return frame(contents[0][1], self._seed, offset)
        parts = []
        for content in group([content for _, content in contents]):
            parts.append(data := frame(content, self._seed, offset))
            offset += len(data)
        return b"".join(parts)

    def add_one(self, seq: int, content: bytes) -> None:
        """Append one record, through memory if possible. OSError leaves the file unchanged."""
        if self._maps_from == _NEVER:
            self.add(((seq, content),))
            return
        size = HEADER_SIZE + len(content)
        while (mapped := self._mapped_to(self.size + size)) is not None:
            if mapped.size >= self._next_index_offset:
                self._add_index_entry(mapped.size)
            if mapped.next != seq:  # no call in this block, so that no signal handler writes in between
                if mapped.first != mapped.next:
                    self._runs = (*self._runs, (mapped.first, mapped.next))
                mapped.first = mapped.next = seq
            mapped.allow(mapped.end)
            if mapped.append(seq, content):
                return
            # A signal handler has written or closed the segment.
        self.add(((seq, content),))

    def mapped_end(self, limit: int) -> MappedEnd | None:
        """Return the memory to which single records up to this size of the file may be written without `add_one`."""
        if self._mapped is not None:
            self._mapped.allow(min(limit, self._next_index_offset))
        return self._mapped

    def settle(self, start: int, end: int) -> None:
        for low, high in self.sequences.overlap(start, end):
            self.settled.add(low, high)

    @property
    def is_synced(self) -> bool:
        """Return whether no sync is left to wait for. After a failed one there is none, because no record has been accepted since."""
        return self.group_sync.failed or self.readable_end >= self.size

    def finish(self) -> None:
        """Release the preallocated space. Nothing more is written to the file. OSError: call it again.

        The caller has waited until `is_synced`, or all records are settled. This method does not wait for other threads.
        """
        changed = self._trim() or not self.is_synced
        if changed and self._durable and not self.group_sync.failed and self._file is not None:
            # Sync the new size: zeros at the end of a file that is not the last one are damage.
            os.fdatasync(self._file.number)
        self._allocated_end = 0

    def duplicate_handle(self) -> int:
        """Return a file handle for one reader. It stays valid when the file is deleted."""
        assert self._file is not None, "an open segment"
        return os.dup(self._file.number)

    def read(self, handle: int, after: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield sequence and content of each record above `after` between two offsets of the file."""
        index = bisect_right(self._index, (after, 1 << 62)) - 1
        start = max(start, self._index[index][1] if index >= 0 else 0)
        for found in scan(handle, start, end, self._seed):
            for content in records(found.content):
                if (seq := sequence(content)) > after:
                    yield seq, content

    def recover(self, on_damage: Callable[[Path, FrameDamage, bytes], bool], *, last: bool = True) -> None:
        """Read the file's sequences. `on_damage` returns whether a damaged end may be cut off.

        Zeros at the end of the `last` segment are not damage if its writer preallocated space.
        """
        data = self.path.read_bytes()
        for found in frames(data, self._seed):
            if not isinstance(found, FrameDamage):
                self.has_groups = self.has_groups or is_group(found.content)
                for content in records(found.content):
                    self._add_sequence(sequence(content), found.start)
            elif found.last:
                self._recover_end(data, found, on_damage, preallocated=last and _is_preallocated(data))
                break
            else:
                on_damage(self.path, found, data[found.start : found.end])
            self._size = found.end
        self.group_sync.synced = self.size

    def _recover_end(
        self, data: bytes, damage: FrameDamage, on_damage: Callable[[Path, FrameDamage, bytes], bool], *, preallocated: bool
    ) -> None:  # fmt: skip
        """Cut off the damaged end. Without room for a copy, cut off only the zeros that follow."""
        assert self._file is not None, "an open segment"
        damaged = data[damage.start :]
        if preallocated:
            damaged = without_free_space(damaged)
        end = damage.start + len(damaged)
        if damaged and not on_damage(self.path, damage._replace(end=end), damaged):
            self._size = damage.start + len(damaged.rstrip(b"\0"))
        os.ftruncate(self._file.number, self.size)

    def without_settled(self) -> Segment:
        """Replace the file atomically by one without settled records. OSError leaves this one in place.

        Records whose sync failed or whose write was interrupted are not kept either: they were not accepted.
        """
        handle = self.duplicate_handle()
        try:
            kept = [
                (seq, content)
                for seq, content in self.read(handle, -1, 0, self.readable_end)
                if seq in self.sequences and seq not in self.settled
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
            rewritten._size += len(part)
        rewritten.group_sync.synced = rewritten.size
        return rewritten

    def delete(self) -> None:
        """Delete the file. OSError leaves the segment as it is."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._trim()
        self._file = None

    def _trim(self) -> bool:
        """Cut off the preallocated space, and the records whose sync failed: they were not accepted.

        Return whether there were any.
        """
        self._maps_from = _NEVER
        self._unmap()
        if self.group_sync.failed:
            self._deferred.cancel()
        elif (
            self._file is not None
        ):  # of messages that were withdrawn: otherwise the caller has waited for their sync
            self._deferred.write(self._file.number)
        end = self.group_sync.synced if self.group_sync.failed else self.size
        if self._file is None or max(self._allocated_end, self.size) <= end:
            return False
        os.ftruncate(self._file.number, end)
        return True

    def _release_space(self) -> None:
        """Cut off everything after the last record."""
        self._maps_from = max(self._maps_from, self.size + _RETRY_BYTES)  # for signal handlers too
        self._unmap()
        self._allocated_end = 0
        with contextlib.suppress(OSError):
            if self._file is not None:
                os.ftruncate(self._file.number, self.size)

    # writes through memory

    def _mapped_to(self, end: int) -> MappedEnd | None:
        """Return the mapped end if it has room up to this offset. Without space or memory, return None for a while."""
        if self._mapped is not None and self._mapped.end >= end:
            return self._mapped
        self._unmap()
        if self.size < self._maps_from or self._file is None:
            return None
        if self._allocated_end < end:
            self._preallocate(end)
        with contextlib.suppress(OSError, ValueError):  # ValueError: another process has cut off the file
            if self._allocated_end >= end:
                self._map(self._file.number, self.size, self._allocated_end)
                return self._mapped_to(end)
        self._maps_from = self.size + _RETRY_BYTES
        return None

    def _map(self, file: int, size: int, end: int) -> None:
        """Map the allocated space, unless a signal handler has written to the file in between."""
        zeros = bytes(end - size)
        # No call between a comparison and the write or the assignment after it.
        if self._mapped is None and self._size == size:
            os.pwrite(file, zeros, size)  # the page faults of the writes through memory then cost a fifth
        mapped = MappedEnd(file, self._seed, size, end)
        if self._mapped is None and self._size == size:
            self._mapped = mapped

    def _unmap(self) -> None:
        """End the writes through memory. A write to a part of the file that was cut off would end the process."""
        if (mapped := self._mapped) is not None:
            mapped.limit = -1  # from here on no call, so that no signal handler writes in between
            if mapped.first != mapped.next:
                self._runs, mapped.first = (*self._runs, (mapped.first, mapped.next)), mapped.next
            self._size, self._mapped = mapped.base + mapped.position, None
            mapped.close()

    def _sync_file(self) -> None:
        """Write and sync the file. The segment may be closed during the call: settled records need no sync, and close() syncs."""
        file = self._file
        if file is None:
            return
        try:
            end = self._deferred.write(file.number)
            os.fdatasync(file.number)
        except OSError:
            if self._file is not None:
                raise
        else:
            self._deferred.forget(end)

    def _preallocate(self, end: int) -> None:
        assert self._file is not None, "an open segment"
        for ahead in _PREALLOCATE_BYTES:
            allocated_end = -(-(end + ahead) // _ALLOCATION_UNIT) * _ALLOCATION_UNIT
            try:
                os.posix_fallocate(self._file.number, self.size, allocated_end - self.size)
            except OSError:  # without preallocation, each write allocates its own space
                self._release_space()  # a full disk allocates a part
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

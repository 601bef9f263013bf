"""Queue the telemetry batches that are not on the topic yet, in order and bounded.

With a folder each batch is a file until its delivery report arrives, so that `kill -9` loses none. Without a folder it waits in
memory. Beyond the bounds the oldest batches are joined. If that does not help, the oldest ledger rows, and finally the oldest
batches, are dropped and counted.
"""

from __future__ import annotations

import contextlib
import re
import threading
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal import private_files
from producer_core._internal.log_fields import with_fields
from producer_core._internal.plural import plural
from producer_core._internal.queued_logger import queued_logger
from producer_core.metrics.batch_size import concatenate
from producer_core.metrics.telemetry.schema import decode, encode

if TYPE_CHECKING:
    from producer_core.metrics.batch import Batch

logger = queued_logger(__name__)

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-([\w.-]+)\.telemetry")
"""First and last sequence, the number of acknowledgements in the ledger rows, and the producer."""
_ZLIB_LEVEL = 1
"""The fastest level: it reduces a ledger to a fifth, and stronger compression would cost four times the work."""


@dataclass(frozen=True)
class QueueBounds:
    """The bounds of a queue: batches, their stored bytes, and the encoded bytes of two batches that are joined."""

    batches: int
    bytes: int
    joined_bytes: int = 480_000


IN_MEMORY = QueueBounds(300, 32 << 20)
ON_DISK = QueueBounds(10_000, 64 << 20)


@dataclass(eq=False, slots=True)
class QueuedBatch:
    """One batch in the queue. A batch that `was_sent` may be on the topic, so it is never joined with another."""

    first: int
    sequence: int
    producer_id: str
    stored_bytes: int = 0
    encoded_bytes: int = 0
    acknowledgements: int = 0
    was_sent: bool = False
    data: bytes | None = field(default=None, repr=False)
    path: Path | None = None


@dataclass(slots=True)
class LostBatches:
    """Counts the dropped batches, and the acknowledgements of dropped ledger rows."""

    batches: int = 0
    acknowledgements: int = 0

    def __bool__(self) -> bool:
        return bool(self.batches or self.acknowledgements)

    def __str__(self) -> str:
        parts = [plural(self.batches, "window") + " of statistics"] if self.batches else []
        parts += (
            ["the ledger of " + plural(self.acknowledgements, "message")] if self.acknowledgements else []
        )
        return f"The queue of unsent telemetry is full. Lost: {' and '.join(parts)}."


class SendQueue:
    """Queues batches of the recorder's thread for the publisher's thread. Thread-safe."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        bounds: QueueBounds | None = None,
    ) -> None:
        self._folder = folder
        self._bounds = bounds or (IN_MEMORY if folder is None else ON_DISK)
        self._lock = threading.Lock()  # guards the fields below
        self._entries: list[QueuedBatch] = []
        self._bytes = 0
        self._lost = LostBatches()
        self._disk_failed = False
        self.counts: Counter[str] = Counter()
        if folder is not None:
            self._load(folder)

    def put(self, batch: Batch) -> QueuedBatch:
        """Queue a batch. With a folder it is on disk when this returns, unless the disk fails."""
        entry = QueuedBatch(batch.begins, batch.sequence, batch.producer_id)
        with self._lock:
            self._store(entry, batch)
            self._entries.append(entry)
            self._shrink()
        return entry

    def next(self, most: int) -> list[tuple[QueuedBatch, bytes]]:
        """Return the oldest batches with the values of their records, and mark them as sent."""
        with self._lock:
            oldest = []
            for entry in list(self._entries[:most]):
                value = self._value(entry)
                if value is not None:
                    entry.was_sent = True
                    oldest.append((entry, value))
        return oldest

    def done(self, entry: QueuedBatch) -> None:
        """Remove a batch that is on the topic."""
        with self._lock:
            self._remove(entry)

    def give_up(self, entry: QueuedBatch) -> None:
        """Drop and count a batch that can never be sent."""
        with self._lock:
            self._drop(entry)

    def lost(self) -> LostBatches:
        """Return the losses since the last call."""
        with self._lock:
            lost, self._lost = self._lost, LostBatches()
        return lost

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def on_disk(self) -> bool:
        """Whether the queue survives the end of this process."""
        return self._folder is not None and not self._disk_failed

    # the bounds

    def _shrink(self) -> None:
        while self._entries:
            too_many, too_large = len(self._entries) > self._bounds.batches, self._bytes > self._bounds.bytes
            if not too_many and not too_large:
                return
            # If only the count is too high, dropping ledger rows helps only where it makes two batches joinable.
            candidates = self._entries if too_large else [one for pair in self._joinable() for one in pair]
            if not self._join() and not self._drop_ledger_rows(candidates):
                self._drop(self._entries[0])

    def _joinable(self) -> list[tuple[QueuedBatch, QueuedBatch]]:
        """Return the neighbors that may be joined if their size allows it: of one producer, and never sent."""
        return [
            (one, two)
            for one, two in pairwise(self._entries)
            if one.producer_id == two.producer_id and not (one.was_sent or two.was_sent)
        ]

    def _join(self) -> bool:
        """Join the two oldest neighbors whose size allows it; return False if there are none."""
        for one, two in self._joinable():
            if one.encoded_bytes + two.encoded_bytes <= self._bounds.joined_bytes:
                first, second = self._batch(one), self._batch(two)
                if first is None or second is None:
                    return True  # a damaged batch was dropped, which makes room too
                new = QueuedBatch(one.first, two.sequence, two.producer_id)
                self._store(new, concatenate(first, second))
                self._entries[self._entries.index(one)] = new
                for old in (one, two):
                    self._delete(old)
                self._entries.remove(two)
                self.counts["joined"] += 1
                return True
        return False

    def _drop_ledger_rows(self, entries: Sequence[QueuedBatch]) -> bool:
        """Drop and count the ledger rows of the oldest batch that has any; return False if there are none.

        The batch may be on the topic already. A reader then merges the complete copy.
        """
        for entry in entries:
            if entry.acknowledgements:
                batch = self._batch(entry)
                if batch is not None:
                    self._lost.acknowledgements += entry.acknowledgements
                    self._bytes -= entry.stored_bytes
                    self._store(entry, batch.drop_ledger_rows())
                return True
        return False

    def _drop(self, entry: QueuedBatch) -> None:
        self._lost.batches += entry.sequence - entry.first + 1
        self._lost.acknowledgements += entry.acknowledgements
        self._remove(entry)

    # storage

    def _store(self, entry: QueuedBatch, batch: Batch) -> None:
        encoded = encode(batch)
        data = zlib.compress(encoded, _ZLIB_LEVEL)
        entry.encoded_bytes, entry.stored_bytes = len(encoded), len(data)
        entry.acknowledgements = batch.acknowledgements
        self._bytes += len(data)
        before = entry.path
        entry.path = None if self._folder is None else self._write(self._folder, entry, data)
        entry.data = data if entry.path is None else None
        if before is not None and entry.path not in (None, before):
            _delete_file(before)

    def _write(self, folder: Path, entry: QueuedBatch, data: bytes) -> Path | None:
        """Write the file atomically: a process killed here leaves no part of it. Return None if the disk refuses it."""
        numbers = f"{entry.first:012d}-{entry.sequence:012d}-{entry.acknowledgements}"
        path = folder / f"{numbers}-{entry.producer_id}.telemetry"
        new = path.with_suffix(".new")
        try:
            private_files.write(new, data)
            new.replace(path)
        except OSError as error:
            if not self._disk_failed:
                logger.warning(**with_fields("telemetry waits in memory", path=str(path), error=str(error)))
            self._disk_failed = True
            return None
        self._disk_failed = False
        return path

    def _value(self, entry: QueuedBatch) -> bytes | None:
        """Return the record's value; if its file cannot be read, drop the batch and return None."""
        try:
            data = entry.data if entry.path is None else entry.path.read_bytes()
            return zlib.decompress(data or b"")
        except (OSError, zlib.error) as error:
            self._drop_damaged(entry, error)
            return None

    def _batch(self, entry: QueuedBatch) -> Batch | None:
        value = self._value(entry)
        try:
            return None if value is None else decode(value)
        except ValueError as error:  # written by another version of this package
            self._drop_damaged(entry, error)
            return None

    def _drop_damaged(self, entry: QueuedBatch, error: Exception) -> None:
        logger.warning(**with_fields("queued telemetry is damaged", path=str(entry.path), error=str(error)))
        self._drop(entry)

    def _remove(self, entry: QueuedBatch) -> None:
        if entry in self._entries:
            self._entries.remove(entry)
            self._delete(entry)

    def _delete(self, entry: QueuedBatch) -> None:
        self._bytes -= entry.stored_bytes
        if entry.path is not None:
            _delete_file(entry.path)

    # start

    def _load(self, folder: Path) -> None:
        """Load the batches of an earlier process, which the topic may have already.

        Raises nothing, because telemetry must not stop the producer.
        """
        try:
            private_files.make_folder(folder)
            paths = sorted(folder.iterdir())
        except OSError as error:
            logger.warning(**with_fields("telemetry waits in memory", path=str(folder), error=str(error)))
            self._folder = None
            return
        for path in paths:
            with contextlib.suppress(OSError):  # an entry that this process may not touch
                if match := _NAME.fullmatch(path.name):
                    self._entries.append(_entry_of(path, match))
                elif path.suffix == ".new":  # an incomplete file of a killed process
                    path.unlink()
        self._entries = _without_superseded(self._entries)
        self._bytes = sum(entry.stored_bytes for entry in self._entries)
        self.counts["found"] = len(self._entries)


def _entry_of(path: Path, match: re.Match[str]) -> QueuedBatch:
    first, last, acknowledgements, producer_id = int(match[1]), int(match[2]), int(match[3]), match[4]
    size = path.stat().st_size
    return QueuedBatch(
        first, last, producer_id, size, acknowledgements=acknowledgements, was_sent=True, path=path
    )


def _delete_file(path: Path) -> None:
    with contextlib.suppress(OSError):  # at worst the batch is sent twice, and merged once
        path.unlink(missing_ok=True)


def _without_superseded(entries: Sequence[QueuedBatch]) -> list[QueuedBatch]:
    """Delete the batches that a joined or reduced batch replaces; a process killed in between leaves both."""
    kept: list[QueuedBatch] = []
    for entry in sorted(entries, key=_replacement_first):
        last = kept[-1] if kept else None
        if last is not None and last.producer_id == entry.producer_id and entry.sequence <= last.sequence:
            assert entry.path is not None
            _delete_file(entry.path)
        else:
            kept.append(entry)
    return sorted(kept, key=lambda entry: entry.sequence)


def _replacement_first(entry: QueuedBatch) -> tuple[str, int, int, int]:
    """Sort by producer and first sequence: a joined batch before its parts, a reduced batch before the complete one."""
    return entry.producer_id, entry.first, -entry.sequence, entry.acknowledgements

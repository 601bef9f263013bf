"""The waiting room of telemetry: batches that are not on the topic yet, in order and bounded.

With a folder each batch is a file from the moment it comes until its delivery report does, so that kill -9 loses none;
without, it waits in memory. Beyond the bounds the oldest are joined; where that does not help the oldest ledger rows,
and at last the oldest batches, are given up, and counted.
"""

from __future__ import annotations

import contextlib
import logging
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
from producer_core.metrics.batch_size import joined
from producer_core.metrics.telemetry.schema import decode, encode

if TYPE_CHECKING:
    from producer_core.metrics.batch import Batch

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-([\w.-]+)\.telemetry")
"""First and last number, how many acknowledgements the ledger tells, and the producer."""
_LEVEL = 1
"""zlib's quickest: a ledger becomes a fifth, and half as much again would cost four times the work."""


@dataclass(frozen=True)
class QueueBounds:
    """What may wait: so many batches, and bytes of them as they are kept; `together` is what two joined ones may take."""

    batches: int
    bytes: int
    together: int = 480_000


IN_MEMORY = QueueBounds(300, 32 << 20)
ON_DISK = QueueBounds(10_000, 64 << 20)


@dataclass(eq=False, slots=True)
class QueuedBatch:
    """One batch that waits. `handed`: the client had it, so the topic may; then it is joined with no other."""

    first: int
    sequence: int
    producer_id: str
    kept: int = 0
    plain: int = 0
    acknowledgements: int = 0
    handed: bool = False
    data: bytes | None = field(default=None, repr=False)
    path: Path | None = None


@dataclass(slots=True)
class LostBatches:
    """What had no room: batches, and acknowledgements of the ledger."""

    batches: int = 0
    acknowledgements: int = 0

    def __bool__(self) -> bool:
        return bool(self.batches or self.acknowledgements)

    def __str__(self) -> str:
        parts = [f"{self.batches:,} windows of statistics"] if self.batches else []
        parts += [f"the ledger of {self.acknowledgements:,} messages"] if self.acknowledgements else []
        return f"Telemetry that could not be sent had no room any more: {' and '.join(parts)} are lost."


class SendQueue:
    """Put in on the recorder's thread, taken out on the publisher's."""

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
        """Keep a batch; it is on the disk when this returns, if there is a folder and it takes it."""
        entry = QueuedBatch(batch.begins, batch.sequence, batch.producer_id)
        with self._lock:
            self._keep(entry, batch)
            self._entries.append(entry)
            self._shrink()
        return entry

    def next(self, most: int) -> list[tuple[QueuedBatch, bytes]]:
        """The oldest, each with its record's value; they count as handed over from now on."""
        with self._lock:
            taken = []
            for entry in list(self._entries[:most]):
                value = self._value(entry)
                if value is not None:
                    entry.handed = True
                    taken.append((entry, value))
        return taken

    def done(self, entry: QueuedBatch) -> None:
        """It is on the topic."""
        with self._lock:
            self._remove(entry)

    def give_up(self, entry: QueuedBatch) -> None:
        """It can never be sent."""
        with self._lock:
            self._drop(entry)

    def lost(self) -> LostBatches:
        """What was lost since this was asked last."""
        with self._lock:
            lost, self._lost = self._lost, LostBatches()
        return lost

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def on_disk(self) -> bool:
        """Whether what waits outlives this process."""
        return self._folder is not None and not self._disk_failed

    # the bounds

    def _shrink(self) -> None:
        while self._entries:
            many, large = len(self._entries) > self._bounds.batches, self._bytes > self._bounds.bytes
            if not many and not large:
                return
            # Where only their number is too large, less in one helps if it can be joined with its neighbour then.
            robbed = self._entries if large else [entry for pair in self._alike() for entry in pair]
            if not self._join() and not self._rob(robbed):
                self._drop(self._entries[0])

    def _alike(self) -> list[tuple[QueuedBatch, QueuedBatch]]:
        """Neighbours that may be joined if they fit together: of one producer, and nobody was handed them."""
        return [
            (one, two)
            for one, two in pairwise(self._entries)
            if one.producer_id == two.producer_id and not (one.handed or two.handed)
        ]

    def _join(self) -> bool:
        """Make one of the two oldest neighbours that fit together; False if there are none."""
        for one, two in self._alike():
            if one.plain + two.plain <= self._bounds.together:
                first, second = self._batch(one), self._batch(two)
                if first is None or second is None:
                    return True  # what was damaged is gone, so there is room again
                new = QueuedBatch(one.first, two.sequence, two.producer_id)
                self._keep(new, joined(first, second))
                self._entries[self._entries.index(one)] = new
                for old in (one, two):
                    self._forget(old)
                self._entries.remove(two)
                self.counts["joined"] += 1
                return True
        return False

    def _rob(self, entries: Sequence[QueuedBatch]) -> bool:
        """Give up the ledger rows of the oldest batch that has any; it says so itself. False if there are none.

        Also of one that the topic may have: a reader takes the one that lost nothing.
        """
        for entry in entries:
            if entry.acknowledgements:
                batch = self._batch(entry)
                if batch is not None:
                    self._lost.acknowledgements += entry.acknowledgements
                    self._bytes -= entry.kept
                    self._keep(entry, batch.robbed())
                return True
        return False

    def _drop(self, entry: QueuedBatch) -> None:
        self._lost.batches += entry.sequence - entry.first + 1
        self._lost.acknowledgements += entry.acknowledgements
        self._remove(entry)

    # keeping

    def _keep(self, entry: QueuedBatch, batch: Batch) -> None:
        plain = encode(batch)
        data = zlib.compress(plain, _LEVEL)
        entry.plain, entry.kept, entry.acknowledgements = len(plain), len(data), batch.acknowledgements
        self._bytes += len(data)
        before = entry.path
        entry.path = None if self._folder is None else self._written(self._folder, entry, data)
        entry.data = data if entry.path is None else None
        if before is not None and entry.path not in (None, before):
            _delete(before)

    def _written(self, folder: Path, entry: QueuedBatch, data: bytes) -> Path | None:
        """Whole or not at all: a process killed here leaves nothing of it. None where the disk does not take it."""
        numbers = f"{entry.first:012d}-{entry.sequence:012d}-{entry.acknowledgements}"
        path = folder / f"{numbers}-{entry.producer_id}.telemetry"
        new = path.with_suffix(".new")
        try:
            private_files.write(new, data)
            new.replace(path)
        except OSError as error:
            if not self._disk_failed:
                logger.warning("telemetry waits in memory", extra={"path": str(path), "error": str(error)})
            self._disk_failed = True
            return None
        self._disk_failed = False
        return path

    def _value(self, entry: QueuedBatch) -> bytes | None:
        """The record's value; None, and it is gone, when its file cannot be read any more."""
        try:
            data = entry.data if entry.path is None else entry.path.read_bytes()
            return zlib.decompress(data or b"")
        except (OSError, zlib.error) as error:
            self._damaged(entry, error)
            return None

    def _batch(self, entry: QueuedBatch) -> Batch | None:
        value = self._value(entry)
        try:
            return None if value is None else decode(value)
        except ValueError as error:  # another version of this package left it
            self._damaged(entry, error)
            return None

    def _damaged(self, entry: QueuedBatch, error: Exception) -> None:
        logger.warning(
            "telemetry that waited is damaged", extra={"path": str(entry.path), "error": str(error)}
        )
        self._drop(entry)

    def _remove(self, entry: QueuedBatch) -> None:
        if entry in self._entries:
            self._entries.remove(entry)
            self._forget(entry)

    def _forget(self, entry: QueuedBatch) -> None:
        self._bytes -= entry.kept
        if entry.path is not None:
            _delete(entry.path)

    # the start

    def _load(self, folder: Path) -> None:
        """What an earlier process left; whether the topic has it nobody knows. Raises nothing: telemetry is a side job."""
        try:
            private_files.make_folder(folder)
            paths = sorted(folder.iterdir())
        except OSError as error:
            logger.warning("telemetry waits in memory", extra={"path": str(folder), "error": str(error)})
            self._folder = None
            return
        for path in paths:
            with contextlib.suppress(OSError):  # somebody else's
                if found := _NAME.fullmatch(path.name):
                    kept, told = path.stat().st_size, int(found[3])
                    first, last = int(found[1]), int(found[2])
                    entry = QueuedBatch(
                        first, last, found[4], kept, acknowledgements=told, handed=True, path=path
                    )
                    self._entries.append(entry)
                elif path.suffix == ".new":  # half a file of a process that was killed
                    path.unlink()
        self._entries = _without_parts(self._entries)
        self._bytes = sum(entry.kept for entry in self._entries)
        self.counts["found"] = len(self._entries)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):  # sent twice at worst, and merged once
        path.unlink(missing_ok=True)


def _without_parts(entries: Sequence[QueuedBatch]) -> list[QueuedBatch]:
    """Killed after two were joined, or one was robbed, and before the old ones were deleted, a process leaves both."""
    kept: list[QueuedBatch] = []
    for entry in sorted(entries, key=_newest_first):
        last = kept[-1] if kept else None
        if last is not None and last.producer_id == entry.producer_id and entry.sequence <= last.sequence:
            assert entry.path is not None
            _delete(entry.path)
        else:
            kept.append(entry)
    return sorted(kept, key=lambda entry: entry.sequence)


def _newest_first(entry: QueuedBatch) -> tuple[str, int, int, int]:
    """By producer and first number: the whole before its parts, and what was robbed before what it was."""
    return entry.producer_id, entry.first, -entry.sequence, entry.acknowledgements

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

from producer_core.store.sizing import joined
from producer_core.telemetry.schema import decode, encode

if TYPE_CHECKING:
    from producer_core.store.batch import Batch

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d+)-(\d+)-([\w.-]+)\.telemetry")
_LEVEL = 1
"""zlib's quickest: a ledger becomes a fifth, and half as much again would cost four times the work."""


@dataclass(frozen=True)
class Bounds:
    """What may wait: so many batches, and bytes of them as they are kept; `together` is what two joined ones may take."""

    batches: int
    bytes: int
    together: int = 480_000


IN_MEMORY = Bounds(300, 32 << 20)
ON_DISK = Bounds(10_000, 64 << 20)


@dataclass(eq=False, slots=True)
class Entry:
    """One batch that waits. `handed`: the client had it, so the topic may; then it stays what it is."""

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
class Lost:
    """What had no room: batches, and acknowledgements of the ledger."""

    batches: int = 0
    acknowledgements: int = 0

    def __bool__(self) -> bool:
        return bool(self.batches or self.acknowledgements)

    def __str__(self) -> str:
        parts = [f"{self.batches:,} windows of statistics"] if self.batches else []
        parts += [f"the ledger of {self.acknowledgements:,} messages"] if self.acknowledgements else []
        return f"Telemetry that could not be sent had no room any more: {' and '.join(parts)} are lost."


class Waiting:
    """Put in on the recorder's thread, taken out on the publisher's."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        bounds: Bounds | None = None,
    ) -> None:
        self._folder = folder
        self._bounds = bounds or (IN_MEMORY if folder is None else ON_DISK)
        self._lock = threading.Lock()  # guards the fields below
        self._entries: list[Entry] = []
        self._bytes = 0
        self._lost = Lost()
        self._disk_failed = False
        self.counts: Counter[str] = Counter()
        if folder is not None:
            self._load(folder)

    def put(self, batch: Batch) -> Entry:
        """Keep a batch; it is on the disk when this returns, if there is a folder and it takes it."""
        entry = Entry(batch.begins, batch.sequence, batch.producer_id)
        with self._lock:
            self._keep(entry, batch)
            self._entries.append(entry)
            self._shrink()
        return entry

    def next(self, most: int) -> list[tuple[Entry, bytes]]:
        """The oldest, each with its record's value; they count as handed over from now on."""
        with self._lock:
            taken = []
            for entry in list(self._entries[:most]):
                value = self._value(entry)
                if value is not None:
                    entry.handed = True
                    taken.append((entry, value))
        return taken

    def done(self, entry: Entry) -> None:
        """It is on the topic."""
        with self._lock:
            self._remove(entry)

    def give_up(self, entry: Entry) -> None:
        """It can never be sent."""
        with self._lock:
            self._drop(entry)

    def lost(self) -> Lost:
        """What was lost since this was asked last."""
        with self._lock:
            lost, self._lost = self._lost, Lost()
        return lost

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def on_disk(self) -> bool:
        """Whether what waits outlives this process."""
        return self._folder is not None and not self._disk_failed

    # the bounds

    def _shrink(self) -> None:
        while self._entries and (
            len(self._entries) > self._bounds.batches or self._bytes > self._bounds.bytes
        ):
            if not self._join() and not self._rob():
                self._drop(self._entries[0])

    def _join(self) -> bool:
        """Make one of the two oldest neighbours that nobody was handed and that fit together; False if there are none."""
        for one, two in pairwise(self._entries):
            alike = one.producer_id == two.producer_id and not (one.handed or two.handed)
            if alike and one.plain + two.plain <= self._bounds.together:
                first, second = self._batch(one), self._batch(two)
                if first is None or second is None:
                    return True  # what was damaged is gone, so there is room again
                new = Entry(one.first, two.sequence, two.producer_id)
                self._keep(new, joined(first, second))
                self._entries[self._entries.index(one)] = new
                for old in (one, two):
                    self._forget(old)
                self._entries.remove(two)
                self.counts["joined"] += 1
                return True
        return False

    def _rob(self) -> bool:
        """Give up the ledger rows of the oldest batch that has any; it says so itself. False if there are none."""
        for entry in self._entries:
            if entry.acknowledgements:
                self._lost.acknowledgements += entry.acknowledgements
                batch = self._batch(entry)
                if batch is not None:
                    self._bytes -= entry.kept
                    self._keep(entry, batch.robbed())
                return True
        return False

    def _drop(self, entry: Entry) -> None:
        self._lost.batches += entry.sequence - entry.first + 1
        self._lost.acknowledgements += entry.acknowledgements
        self._remove(entry)

    # keeping

    def _keep(self, entry: Entry, batch: Batch) -> None:
        plain = encode(batch)
        data = zlib.compress(plain, _LEVEL)
        entry.plain, entry.kept, entry.acknowledgements = len(plain), len(data), batch.acknowledgements
        self._bytes += len(data)
        entry.data, entry.path = data, None
        if self._folder is not None:
            self._write(entry, data)

    def _write(self, entry: Entry, data: bytes) -> None:
        """Whole or not at all: a process killed here leaves nothing of it. What the disk does not take stays in memory."""
        assert self._folder is not None
        path = self._folder / f"{entry.first:012d}-{entry.sequence:012d}-{entry.producer_id}.telemetry"
        new = path.with_suffix(".new")
        try:
            new.write_bytes(data)
            new.replace(path)
        except OSError as error:
            if not self._disk_failed:
                logger.warning("telemetry waits in memory", extra={"path": str(path), "error": str(error)})
            self._disk_failed = True
        else:
            self._disk_failed = False
            entry.data, entry.path = None, path

    def _value(self, entry: Entry) -> bytes | None:
        """The record's value; None, and it is gone, when its file cannot be read any more."""
        try:
            data = entry.data if entry.path is None else entry.path.read_bytes()
            return zlib.decompress(data or b"")
        except (OSError, zlib.error) as error:
            logger.warning(
                "telemetry that waited is damaged", extra={"path": str(entry.path), "error": str(error)}
            )
            self._drop(entry)
            return None

    def _batch(self, entry: Entry) -> Batch | None:
        value = self._value(entry)
        return None if value is None else decode(value)

    def _remove(self, entry: Entry) -> None:
        if entry in self._entries:
            self._entries.remove(entry)
            self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        self._bytes -= entry.kept
        if entry.path is not None:
            with contextlib.suppress(OSError):  # sent twice at worst, and merged once
                entry.path.unlink(missing_ok=True)

    # the start

    def _load(self, folder: Path) -> None:
        """What an earlier process left; whether the topic has it nobody knows. Raises nothing: telemetry is a side job."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths = sorted(folder.iterdir())
        except OSError as error:
            logger.warning("telemetry waits in memory", extra={"path": str(folder), "error": str(error)})
            self._folder = None
            return
        for path in paths:
            found = _NAME.fullmatch(path.name)
            if found is None:
                path.unlink(missing_ok=True)  # half a file of a process that was killed
            else:
                entry = Entry(
                    int(found[1]), int(found[2]), found[3], path.stat().st_size, handed=True, path=path
                )
                self._entries.append(entry)
        self._entries = _without_parts(self._entries)
        self._bytes = sum(entry.kept for entry in self._entries)
        self.counts["found"] = len(self._entries)


def _without_parts(entries: Sequence[Entry]) -> list[Entry]:
    """Killed after two were joined and before they were deleted, a process leaves both beside the whole."""
    kept: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: (entry.producer_id, entry.first, -entry.sequence)):
        last = kept[-1] if kept else None
        if last is not None and last.producer_id == entry.producer_id and entry.sequence <= last.sequence:
            assert entry.path is not None
            entry.path.unlink(missing_ok=True)
        else:
            kept.append(entry)
    return sorted(kept, key=lambda entry: entry.sequence)

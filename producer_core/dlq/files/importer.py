"""Import a file of dead letters into a store, as one audited operation that can be repeated."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.dlq.files.manifest import Manifest, Progress, format_of, read_manifest, verify
from producer_core.dlq.files.reader import Item, RejectedRecord, masked_file, read
from producer_core.dlq.files.selection import read_with_retries
from producer_core.dlq.files.validation import ImportedRecord
from producer_core.dlq.upsert import Import, ImportResult, import_dead_letters, preview_import
from producer_core.errors import StoreError, TransferError
from producer_core.roles.role_check import check_operator

if TYPE_CHECKING:
    from producer_core.store import Store

MAX_REPORTED = 100
"""Rejected rows that are listed; all are counted."""
_STORE_TIMEOUT = 60.0


@dataclass(frozen=True)
class ImportSummary:
    """The number of rows imported, already known (by state, unchanged), and rejected."""

    file: str
    new: int
    known: int
    refused: int
    known_by_state: dict[str, int]
    bad: tuple[RejectedRecord, ...]
    text: str
    dry_run: bool = False


def import_(
    store: Store,
    source: Path | str,
    *,
    who: str,
    origin: str,
    no_manifest: bool = False,
    dry_run: bool = False,
    checking: Progress | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> ImportSummary:
    """Import the dead letters of a Parquet or JSON Lines file that `export` wrote, each unchanged.

    The file must match its manifest byte for byte; `no_manifest` imports the readable part of a file without a manifest
    or of a damaged file. A masked export is rejected. Message ids that the store already has stay unchanged, so a killed
    import can be repeated. Invalid rows are counted and reported, and the other rows are imported. The start and the
    result are audited. Raise NotPermitted if the approval policy does not let this person change dead letters. `checking` gets the bytes compared with the manifest and the total, `progress` the rows done and
    the total.
    """
    source = Path(source)
    manifest = _verified_manifest(source, no_manifest, checking)
    job = _ImportJob(store, source, manifest, who, origin, dry_run, clock)
    if dry_run:
        return job.run(progress)
    with store.borrow(write=True, timeout=_STORE_TIMEOUT):
        check_operator(store, who=who, origin=origin, now=clock())
    job.audit(0, f"Started to import {source.name}{_exported_by(manifest)}.")
    try:
        summary = job.run(progress)
    except BaseException as error:
        with contextlib.suppress(StoreError):
            job.audit(
                job.counts.new,
                f"{job.counts.text(source)} The import failed: {error or type(error).__name__}",
            )
        raise
    job.audit(summary.new, summary.text)
    return summary


def manifest_of(source: Path | str, *, no_manifest: bool = False) -> Manifest | None:
    """Return the manifest of a file to import. Raise TransferError for a masked export or a missing manifest."""
    source = Path(source)
    if not source.is_file():
        raise TransferError(f"The file {source} does not exist.")
    if format_of(source) == "csv":
        raise TransferError("CSV files cannot be imported.", fix="Export as .parquet or .jsonl.")
    manifest = None if no_manifest else read_manifest(source)
    if manifest is None and not no_manifest:
        raise TransferError(
            f"There is no manifest beside {source}, so the file cannot be verified.",
            fix=f"Copy {source.name}.manifest.json as well, or use --no-manifest to import the readable rows.",
        )
    if manifest is not None and manifest.masked:
        raise masked_file(source)
    if no_manifest:
        next(read(source, format_of(source)), None)  # the first records tell whether the file is masked
    return manifest


def _verified_manifest(source: Path, no_manifest: bool, progress: Progress | None) -> Manifest | None:
    manifest = manifest_of(source, no_manifest=no_manifest)
    if manifest is not None:
        verify(source, manifest, progress)
    return manifest


@dataclass
class _Counts:
    new: int = 0
    refused: int = 0
    replaying: int = 0
    known: Counter[str] = field(default_factory=Counter)
    bad: list[RejectedRecord] = field(default_factory=list)

    def add(self, result: ImportResult, items: Sequence[Item]) -> None:
        self.new += len(result.new)
        self.known += result.known
        new = {*result.new}
        for item in items:
            if isinstance(item, RejectedRecord):
                self.refused += item.count
                self.bad += [item] if len(self.bad) < MAX_REPORTED else []
            elif item.was_replaying and item.dead_letter.message_id in new:
                self.replaying += 1

    @property
    def rows(self) -> int:
        return self.new + self.known.total() + self.refused

    def text(self, source: Path, *, dry_run: bool = False) -> str:
        verb = "Would import" if dry_run else "Imported"
        sentences = [f"{verb} {plural(self.new, 'dead letter')} from {source.name}."]
        if self.known:
            states = ", ".join(f"{number:,} {state}" for state, number in self.known.most_common())
            sentences.append(f"{self.known.total():,} already known and unchanged ({states}).")
        if self.replaying:
            they = "it is" if self.replaying == 1 else "they are"
            sentences.append(
                f"{self.replaying:,} exported during a replay; a replay first checks whether {they} on the topic."
            )
        if self.refused:
            first = "" if self.refused == 1 else "; the first"
            sentences.append(f"{plural(self.refused, 'row')} rejected{first}: {self.bad[0]}.")
        return " ".join(sentences)


@dataclass
class _ImportJob:
    store: Store
    source: Path
    manifest: Manifest | None
    who: str
    origin: str
    dry_run: bool
    clock: Callable[[], float]
    counts: _Counts = field(default_factory=_Counts)

    def run(self, progress: Progress | None) -> ImportSummary:
        total = self.manifest.rows if self.manifest else 0
        for items in read(self.source, format_of(self.source)):
            self.counts.add(self._import([one for one in items if isinstance(one, ImportedRecord)]), items)
            if progress is not None:
                progress(self.counts.rows, max(total, self.counts.rows))
        return ImportSummary(
            self.source.name,
            self.counts.new,
            self.counts.known.total(),
            self.counts.refused,
            dict(self.counts.known),
            tuple(self.counts.bad),
            self.counts.text(self.source, dry_run=self.dry_run),
            self.dry_run,
        )

    def audit(self, count: int, outcome: str) -> None:
        selection = {"file": str(self.source), "no_manifest": self.manifest is None}
        if self.manifest is not None:
            selection |= {"sha256": self.manifest.sha256, "filter": dict(self.manifest.filter)}
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="import",
            selection=selection,
            count=count,
            outcome=outcome,
        )

    def _import(self, records: Sequence[ImportedRecord]) -> ImportResult:
        if not records:
            return ImportResult(())
        if self.dry_run:
            dead_letters = [one.dead_letter for one in records]
            return read_with_retries(self.store, lambda connection: preview_import(connection, dead_letters))
        with self.store.borrow(write=True, timeout=_STORE_TIMEOUT) as connection:
            return import_dead_letters(
                connection,
                list(map(_as_import, records)),
                now=self.clock(),
                who=self.who,
                origin=self.origin,
                text=f"from {self.source.name}{_exported_by(self.manifest)}",
            )


def _as_import(record: ImportedRecord) -> Import:
    columns: dict[str, Any] = {
        "value_size": record.value_size,
        "landed_partition": record.landed_partition,
        "landed_offset": record.landed_offset,
    }
    return Import(record.dead_letter, columns, record.revisions)


def _exported_by(manifest: Manifest | None) -> str:
    return f", exported by {manifest.exported_by}" if manifest else ", without a manifest"

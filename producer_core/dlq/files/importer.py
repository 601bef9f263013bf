"""The import of a file of dead letters into a store, as one audited act that can be repeated."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core.dlq.files.manifest import Manifest, Progress, format_of, read_manifest, verify
from producer_core.dlq.files.reader import Item, RejectedRecord, masked_file, read
from producer_core.dlq.files.selection import turn
from producer_core.dlq.files.validation import ImportedRecord
from producer_core.dlq.upsert import Import, ImportResult, look, take_in
from producer_core.errors import StoreError, TransferError

if TYPE_CHECKING:
    from producer_core.store import Store

NAMED = 100
"""Bad rows that are named; all are counted."""
_PATIENCE = 60.0


@dataclass(frozen=True)
class ImportSummary:
    """What became of a file's rows: taken in, known already (and left as they are, by state), or refused."""

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
    """Take in the dead letters of a Parquet or JSON Lines file of `export`, each as it was.

    The file must be what its manifest says, byte for byte; `no_manifest` takes one without, or a damaged one, as far
    as it can be read. A masked export is refused. A message id that this store knows stays as it is here, so an
    import that was killed is simply repeated. A row that is no dead letter is counted and named, and the others are
    taken in. Two rows of the audit: that it began, and what came of it. `checking` hears how many bytes of how many
    are compared with the manifest, `progress` how many rows of how many are settled.
    """
    source = Path(source)
    manifest = _checked(source, no_manifest, checking)
    job = _ImportJob(store, source, manifest, who, origin, dry_run, clock)
    if dry_run:
        return job.run(progress)
    job.audit(0, f"Began to import {source.name}{_by(manifest)}.")
    try:
        done = job.run(progress)
    except BaseException as error:
        with contextlib.suppress(StoreError):
            job.audit(
                job.tally.new, f"{job.tally.text(source)} Stopped there: {error or type(error).__name__}"
            )
        raise
    job.audit(done.new, done.text)
    return done


def manifest_of(source: Path | str, *, no_manifest: bool = False) -> Manifest | None:
    """The manifest of a file that may be imported: TransferError for a masked export, or a missing manifest."""
    source = Path(source)
    if not source.is_file():
        raise TransferError(f"There is no file {source}.")
    if format_of(source) == "csv":
        raise TransferError("CSV is for looking: it is never imported.", fix="Export as .parquet or .jsonl.")
    manifest = None if no_manifest else read_manifest(source)
    if manifest is None and not no_manifest:
        raise TransferError(
            f"There is no manifest beside {source}, so nobody can say that the file is whole.",
            fix=f"Copy {source.name}.manifest.json as well; or say --no-manifest to take what can be read.",
        )
    if manifest is not None and manifest.masked:
        raise masked_file(source)
    return manifest


def _checked(source: Path, no_manifest: bool, progress: Progress | None) -> Manifest | None:
    manifest = manifest_of(source, no_manifest=no_manifest)
    if manifest is not None:
        verify(source, manifest, progress)
    return manifest


@dataclass
class _Tally:
    new: int = 0
    refused: int = 0
    replaying: int = 0
    known: Counter[str] = field(default_factory=Counter)
    bad: list[RejectedRecord] = field(default_factory=list)

    def add(self, taken: ImportResult, items: Sequence[Item]) -> None:
        self.new += len(taken.new)
        self.known += taken.known
        fresh = {*taken.new}
        for item in items:
            if isinstance(item, RejectedRecord):
                self.refused += item.count
                self.bad += [item] if len(self.bad) < NAMED else []
            elif item.was_replaying and item.dead_letter.message_id in fresh:
                self.replaying += 1

    @property
    def rows(self) -> int:
        return self.new + self.known.total() + self.refused

    def text(self, source: Path, *, dry_run: bool = False) -> str:
        verb = "Would import" if dry_run else "Imported"
        dead_letters = "1 dead letter" if self.new == 1 else f"{self.new:,} dead letters"
        sentences = [f"{verb} {dead_letters} from {source.name}."]
        if self.known:
            states = ", ".join(f"{number:,} {state}" for state, number in self.known.most_common())
            sentences.append(f"{self.known.total():,} were known here and stay as they are ({states}).")
        if self.replaying:
            sentences.append(
                f"{self.replaying:,} were being replayed when they were exported: each is looked for on its topic "
                "before it is sent."
            )
        if self.refused:
            sentences.append(f"{self.refused:,} rows were refused; the first: {self.bad[0]}.")
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
    tally: _Tally = field(default_factory=_Tally)

    def run(self, progress: Progress | None) -> ImportSummary:
        total = self.manifest.rows if self.manifest else 0
        for items in read(self.source, format_of(self.source)):
            self.tally.add(self._take([one for one in items if isinstance(one, ImportedRecord)]), items)
            if progress is not None:
                progress(self.tally.rows, max(total, self.tally.rows))
        return ImportSummary(
            self.source.name,
            self.tally.new,
            self.tally.known.total(),
            self.tally.refused,
            dict(self.tally.known),
            tuple(self.tally.bad),
            self.tally.text(self.source, dry_run=self.dry_run),
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

    def _take(self, some: Sequence[ImportedRecord]) -> ImportResult:
        if not some:
            return ImportResult(())
        if self.dry_run:
            return turn(self.store, lambda connection: look(connection, [one.dead_letter for one in some]))
        with self.store.borrow(write=True, timeout=_PATIENCE) as connection:
            return take_in(
                connection,
                list(map(_brought, some)),
                now=self.clock(),
                who=self.who,
                origin=self.origin,
                text=f"from {self.source.name}{_by(self.manifest)}",
            )


def _brought(one: ImportedRecord) -> Import:
    kept: dict[str, Any] = {
        "value_size": one.value_size,
        "landed_partition": one.landed_partition,
        "landed_offset": one.landed_offset,
    }
    return Import(one.dead_letter, kept)


def _by(manifest: Manifest | None) -> str:
    return f", exported by {manifest.exported_by}" if manifest else ", without a manifest"

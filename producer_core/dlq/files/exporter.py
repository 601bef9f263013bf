"""The export of dead letters to a file, with a manifest beside it, as one audited act."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core import __version__
from producer_core.dlq import DeadLetters
from producer_core.dlq.files import selection
from producer_core.dlq.files.atomic_file import atomic_file, saying
from producer_core.dlq.files.manifest import Format, Manifest, Progress, format_of, manifest_path
from producer_core.dlq.files.record import Record, record_of
from producer_core.dlq.files.selection import FrozenSelection
from producer_core.dlq.files.writers import WRITERS, RecordWriter
from producer_core.errors import StoreError, TransferError

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.dlq.files.atomic_file import AtomicFile
    from producer_core.store import Store


def export(
    store: Store,
    where: DeadLetterFilter,
    target: Path | str,
    *,
    who: str,
    origin: str,
    format: Format | None = None,
    masked: bool | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> Manifest:
    """Write what the filter matches now to `target`, the oldest message first, and its manifest beside it.

    The file appears under its name when it is whole; a manifest comes first, so that no file is ever without. The
    format is that of the name. Parquet and JSON Lines are raw unless `masked`: every byte, to be imported again. CSV
    is masked unless `masked=False`, and is for looking. Memory is bounded, however many there are; `progress` hears
    how many of how many are done. Audited, also when it fails. TransferError, or a StoreError, when it does.
    """
    target = Path(target)
    form = format_of(target, format)
    job = _ExportJob(
        store, where, target, form, form == "csv" if masked is None else masked, who, origin, clock
    )
    try:
        return job.run(progress, overwrite=overwrite)
    except BaseException as error:
        with contextlib.suppress(StoreError):
            job.audit(0, f"Failed, and left no file: {error or type(error).__name__}")
        raise


@dataclass
class _Counts:
    """What went into the file."""

    rows: int = 0
    changed: int = 0
    topics: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record, *, changed: bool) -> None:
        self.rows += 1
        self.changed += changed
        self.topics[record["topic"]] += 1
        self.verdicts[record["verdict"]] += 1
        self.states[record["state"]] += 1


@dataclass(frozen=True)
class _ExportJob:
    store: Store
    where: DeadLetterFilter
    target: Path
    format: Format
    masked: bool
    who: str
    origin: str
    clock: Callable[[], float]

    def run(self, progress: Progress | None, *, overwrite: bool) -> Manifest:
        _check(self.target, overwrite=overwrite)
        with atomic_file(self.target) as file:
            began = self.clock()
            where = DeadLetters(self.store).frozen(self.where)
            with selection.freeze(self.store, where, self.target.parent) as chosen:
                counts = self._write(file, chosen, progress)
            file.sync()
            manifest = self._manifest(file, chosen, counts, began)
            with atomic_file(manifest_path(self.target)) as beside:
                beside.write(manifest.to_json())
                beside.sync()
                self.audit(manifest.rows, f"{manifest.text} sha256 {manifest.sha256}")
                beside.publish()
            file.publish()
        return manifest

    def audit(self, count: int, outcome: str) -> None:
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="export",
            selection={**self.where.to_query(), "file": str(self.target), "masked": self.masked},
            count=count,
            outcome=outcome,
        )

    def _write(self, file: AtomicFile, chosen: FrozenSelection, progress: Progress | None) -> _Counts:
        writer = WRITERS[self.format](file, masked=self.masked)
        try:
            counts = self._fill(writer, chosen, progress)
            writer.close()
        except BaseException:
            writer.abandon()
            raise
        return counts

    def _fill(self, writer: RecordWriter, chosen: FrozenSelection, progress: Progress | None) -> _Counts:
        counts, done = _Counts(), 0
        for some in chosen.slices():
            records = []
            for known, rows in selection.read(self.store, some):
                record = record_of(rows["letter"], rows["body"])
                counts.add(record, changed=record["state_at"] != known.state_at)
                records.append(record)
            if records:
                writer.write(records)
            done += len(some)
            if progress is not None:
                progress(done, chosen.matched)
        return counts

    def _manifest(self, file: AtomicFile, chosen: FrozenSelection, counts: _Counts, began: float) -> Manifest:
        return Manifest(
            file=self.target.name,
            format=self.format,
            masked=self.masked,
            filter=self.where.to_query(),
            matched=chosen.matched,
            rows=counts.rows,
            changed=counts.changed,
            missing=max(0, chosen.matched - counts.rows),
            by_topic=dict(counts.topics.most_common()),
            by_verdict=dict(counts.verdicts.most_common()),
            by_state=dict(counts.states.most_common()),
            size=file.size,
            sha256=file.sha256,
            product_version=__version__,
            exported_at=began,
            exported_by=self.who,
            origin=self.origin,
        )


def _check(target: Path, *, overwrite: bool) -> None:
    with saying(target):
        if target.is_dir():
            raise TransferError(f"{target} is a folder.", fix="Name a file in it.")
        if target.exists() and not overwrite:
            raise TransferError(f"{target} exists already.", fix="Name a new file, or say --overwrite.")

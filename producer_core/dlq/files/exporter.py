"""Export dead letters to a file with a manifest, as one audited operation."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core import __version__
from producer_core.dlq import DeadLetters, lookup
from producer_core.dlq.displayed_body import decoder_of
from producer_core.dlq.files import selection
from producer_core.dlq.files.atomic_file import already_exists, atomic_file, transfer_errors
from producer_core.dlq.files.manifest import Format, Manifest, Progress, format_of, manifest_path
from producer_core.dlq.files.record import Record, record_of
from producer_core.dlq.files.selection import FrozenSelection
from producer_core.dlq.files.writers import WRITERS, RecordWriter
from producer_core.errors import StoreError, TransferError
from producer_core.store import safe_verdicts

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.dlq.files.atomic_file import AtomicFile
    from producer_core.kafka.schemas.decoder import SchemaDecoder
    from producer_core.store import Store

EXPORTED = "The message was exported, and another store may have replayed it."


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
    registry: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
) -> Manifest:
    """Write the matching dead letters to `target`, the oldest message first, and a manifest beside it.

    The file gets its name once it is complete; the manifest is published first, so that no file is without one. The
    file name decides the format. Parquet and JSON Lines have all bytes and can be imported, unless `masked` is set. CSV
    is masked unless `masked=False` and cannot be imported. Memory use does not grow with the number of dead letters.
    Files that cannot be imported have decoded keys and values where these have a schema id; `registry` has settings such
    as `schema.registry.url`. `progress` gets the number done and the total. An audit row is written, even for a failed export. After an export that
    can be imported, no verdict of these dead letters says that a resend is safe. Raise TransferError or StoreError on
    failure.
    """
    target = Path(target)
    file_format = format_of(target, format)
    masked = file_format == "csv" if masked is None else masked
    job = _ExportJob(
        store, where, target, file_format, masked, who, origin, decoder_of(store, registry), clock
    )
    try:
        return job.run(progress, overwrite=overwrite)
    except BaseException as error:
        with contextlib.suppress(StoreError):
            job.audit(0, f"Failed; no file was written: {error or type(error).__name__}")
        raise


@dataclass
class _ExportCounts:
    """The dead letters written to the file."""

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
    decoder: SchemaDecoder
    clock: Callable[[], float]

    def run(self, progress: Progress | None, *, overwrite: bool) -> Manifest:
        _check(self.target, overwrite=overwrite)
        with atomic_file(self.target) as file:
            started = self.clock()
            where = DeadLetters(self.store).frozen(self.where)
            with selection.freeze(self.store, where, self.target.parent) as selected:
                counts = self._write(file, selected, progress)
                self._revoke_safe_verdicts(selected)
            file.sync()
            manifest = self._manifest(file, selected, counts, started)
            with atomic_file(manifest_path(self.target)) as manifest_file:
                manifest_file.write(manifest.to_json())
                manifest_file.sync()
                self.audit(manifest.rows, f"{manifest.text} sha256 {manifest.sha256}")
                manifest_file.publish()
            file.publish()
        return manifest

    def _revoke_safe_verdicts(self, selected: FrozenSelection) -> None:
        """Another store can import the file and replay the dead letters, so none here is safe to resend any more."""
        if self.masked or self.format == "csv":
            return
        for message_ids in selected.windows():
            with self.store.borrow(write=True, timeout=selection.STORE_TIMEOUT) as connection:
                safe_verdicts.revoke(connection, EXPORTED, *lookup.id_in(message_ids))

    def audit(self, count: int, outcome: str) -> None:
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="export",
            selection={**self.where.to_query(), "file": str(self.target), "masked": self.masked},
            count=count,
            outcome=outcome,
        )

    def _write(self, file: AtomicFile, selected: FrozenSelection, progress: Progress | None) -> _ExportCounts:
        writer = WRITERS[self.format](file, masked=self.masked, decoder=self.decoder)
        try:
            counts = self._write_records(writer, selected, progress)
            writer.close()
        except BaseException:
            writer.abort()
            raise
        return counts

    def _write_records(
        self, writer: RecordWriter, selected: FrozenSelection, progress: Progress | None
    ) -> _ExportCounts:
        counts, done = _ExportCounts(), 0
        for slice_ in selected.slices():
            records = []
            for known, rows in selection.read(self.store, slice_):
                record = record_of(rows["dead_letter"], rows["body"], rows["revisions"])
                counts.add(record, changed=record["state_at"] != known.state_at)
                records.append(record)
            if records:
                writer.write(records)
            done += len(slice_)
            if progress is not None:
                progress(done, selected.matched)
        return counts

    def _manifest(
        self, file: AtomicFile, selected: FrozenSelection, counts: _ExportCounts, started: float
    ) -> Manifest:
        return Manifest(
            file=self.target.name,
            format=self.format,
            masked=self.masked,
            filter=self.where.to_query(),
            matched=selected.matched,
            rows=counts.rows,
            changed=counts.changed,
            missing=max(0, selected.matched - counts.rows),
            by_topic=dict(counts.topics.most_common()),
            by_verdict=dict(counts.verdicts.most_common()),
            by_state=dict(counts.states.most_common()),
            size=file.size,
            sha256=file.sha256,
            product_version=__version__,
            exported_at=started,
            exported_by=self.who,
            origin=self.origin,
        )


def _check(target: Path, *, overwrite: bool) -> None:
    with transfer_errors(target):
        if target.is_dir():
            raise TransferError(f"{target} is a folder.", fix="Specify a file in it.")
        if target.exists() and not overwrite:
            raise already_exists(target)

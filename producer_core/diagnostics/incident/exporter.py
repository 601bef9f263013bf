"""Export a time range of a store to an incident bundle, as one audited operation."""

from __future__ import annotations

import contextlib
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from producer_core import __version__
from producer_core._internal.masking import mask, mask_text, rules
from producer_core._internal.work_folder import WorkFolder
from producer_core.diagnostics.incident import excerpt, manifest, page
from producer_core.diagnostics.incident.archive import BundleArchive
from producer_core.diagnostics.incident.archive_writer import ArchiveWriter, file_chunks, too_large
from producer_core.diagnostics.incident.build_store import build_store
from producer_core.diagnostics.incident.manifest import TABLES, BundleManifest
from producer_core.diagnostics.incident.raw_dead_letters import RawDeadLetters
from producer_core.diagnostics.incident.rows import SETTINGS
from producer_core.diagnostics.incident.window import IncidentWindow
from producer_core.dlq.files.atomic_file import already_exists, atomic_file, transfer_errors
from producer_core.errors import StoreError, TransferError
from producer_core.store import Store, file_errors

if TYPE_CHECKING:
    from producer_core.diagnostics.doctor.finding import DoctorFinding
    from producer_core.diagnostics.incident.masks import Masks

BUILT_IN = "built-in rules"
"""The masking rules of a bundle if there is no file with further ones."""


def export_incident(
    store: Store,
    target: Path | str,
    window: IncidentWindow,
    *,
    who: str,
    origin: str,
    raw: bool = False,
    overwrite: bool = False,
    findings: Iterable[DoctorFinding] = (),
    clock: Callable[[], float] = time.time,
) -> BundleManifest:
    """Write the statistics, alerts, dead letters, replays and operator actions of the range to `target`, a zip file.

    The file appears once it is complete, readable for its owner only. Contents are masked: no masked value and no hash of
    one is in the file, and its dead letters cannot be replayed. A `raw` bundle has all bytes, and the dead letters that
    failed in the range can be imported elsewhere; afterwards no verdict of these says here that a resend is safe. A raw
    export is refused while a replay is running. The export copies the store to a folder beside it first, which needs
    room for it; the copy is deleted at the end. `findings` are those of the doctor. The audit log of the store records
    the export, even a failed one. Raise TransferError or StoreError on failure.
    """
    job = _BundleJob(store, Path(target), window, who, origin, raw, clock)
    try:
        return job.run(list(findings), overwrite=overwrite)
    except BaseException as error:
        # an interruption may arrive just after the file was published
        problem = "Failed; no file was written" if isinstance(error, Exception) else "Interrupted"
        with contextlib.suppress(StoreError):
            job.audit(0, f"{problem}: {error or type(error).__name__}")
        raise


@dataclass(frozen=True)
class _BundleJob:
    store: Store
    target: Path
    window: IncidentWindow
    who: str
    origin: str
    raw: bool
    clock: Callable[[], float]

    def run(self, findings: Sequence[DoctorFinding], *, overwrite: bool) -> BundleManifest:
        if self.store.is_incident:
            raise file_errors.incident(self.store.path)
        _check(self.target, overwrite=overwrite)
        letters = RawDeadLetters(self.store, self.window) if self.raw else None
        with atomic_file(self.target) as file, _work_folder(self.store.path) as work:
            path = work.path / "incident.zip"
            with transfer_errors(path):
                described = self._prepare(work, path, letters, findings)
            for chunk in file_chunks(path):
                file.write(chunk)
            file.sync()
            if letters is not None:
                letters.revoke_safe_verdicts()
            self.audit(described.counts.get("dead_letters", 0), f"{_kind(raw=self.raw)} sha256 {file.sha256}")
            file.publish(overwrite=overwrite)
        return described

    def audit(self, count: int, outcome: str) -> None:
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="incident_raw" if self.raw else "incident",
            selection={"since": self.window.since, "until": self.window.until, "file": str(self.target)},
            count=count,
            outcome=outcome,
        )

    def _prepare(
        self, work: WorkFolder, path: Path, letters: RawDeadLetters | None, findings: Sequence[DoctorFinding]
    ) -> BundleManifest:
        """Write the zip file to `path`. The page is rendered from the store that a reader builds from the same file."""
        masking = "" if self.raw else _rules()
        whole = work.path / "whole.duckdb"
        work.ensure_free(_size(self.store.path))
        self.store.snapshot(whole)
        with excerpt.opened(whole, self.window) as found:
            masks = None if self.raw else found.masks()
            described = self._write_tables(path, found, masks, work, masking)
        with _writer(path, work, described) as writer:
            if letters is not None:
                letters.write(whole, work, who=self.who, origin=self.origin)
                for name in manifest.RAW_ONLY:
                    writer.add(name, file_chunks(work.path / name))
        described = replace(described, files=writer.files)
        whole.unlink()
        pages = self._pages(work, path, described, [_masked(one, masks) for one in findings])
        with _writer(path, work, described) as writer:
            for name, data in pages.items():
                writer.add(name, [data])
            described = replace(described, files={**writer.files})
            writer.add(manifest.MANIFEST, [described.to_json()])
        if path.stat().st_size > manifest.MAX_FILE:
            raise too_large()
        return described

    def _write_tables(
        self, path: Path, found: excerpt.Excerpt, masks: Masks | None, work: WorkFolder, masking: str
    ) -> BundleManifest:
        counts: dict[str, int] = {}
        with ArchiveWriter(path, lambda: work.ensure_free(0)) as writer:
            for table, lines in found.tables(masks):
                writer.add(TABLES[table], _counted(lines, counts, table))
                if sum(counts.values()) > manifest.MAX_ROWS:
                    raise too_large()
        return BundleManifest(
            since=self.window.since,
            until=self.window.until,
            masked=not self.raw,
            masking=masking,
            counts=counts,
            files=writer.files,
            product_version=__version__,
            created_at=self.clock(),
            created_by=self.who if self.raw else mask_text(self.who),
            origin=self.origin,
        )

    def _pages(
        self, work: WorkFolder, path: Path, described: BundleManifest, findings: Sequence[DoctorFinding]
    ) -> Mapping[str, bytes]:
        """Return the files for people, from the rows of the bundle."""
        built = work.path / "incident.duckdb"
        work.ensure_free(sum(file.size for file in described.files.values()))
        with zipfile.ZipFile(path) as archive:
            build_store(built, BundleArchive(self.target, described, archive))
        with contextlib.closing(Store.open(built, create=False)) as store:
            shown = page.render(
                store, self.window, findings, now=described.created_at, masked=described.masked
            )
            return {
                manifest.DOCTOR: _json(mask([asdict(finding) for finding in findings])),
                manifest.SETTINGS: _json(mask(_settings(store))),
                manifest.PAGE: shown.encode(),
            }


@contextlib.contextmanager
def _work_folder(store: Path) -> Iterator[WorkFolder]:
    """Yield a folder for this user only. It has unmasked content until the end of the block."""
    with transfer_errors(store.with_name("incident")):
        folder = WorkFolder(store)
    with folder:
        yield folder


def _writer(path: Path, work: WorkFolder, described: BundleManifest) -> ArchiveWriter:
    return ArchiveWriter(path, lambda: work.ensure_free(0), known=described.files)


def _counted(lines: Iterable[bytes], counts: dict[str, int], table: str) -> Iterator[bytes]:
    """Count the rows of a table; the first line names the columns."""
    counts[table] = -1
    for line in lines:
        counts[table] += 1
        yield line


def _masked(finding: DoctorFinding, masks: Masks | None) -> DoctorFinding:
    if masks is None:
        return finding
    return replace(finding, text=masks.text(finding.text), fix=masks.text(finding.fix))


def _rules() -> str:
    """Return the path of the masking rules. Raise ConfigError for an invalid file."""
    path = rules().path
    return BUILT_IN if path is None else mask_text(str(path))[:1000]


def _size(store: Path) -> int:
    """Return the bytes of a store and its write-ahead log."""
    log = store.with_name(store.name + ".wal")
    return sum(path.stat().st_size for path in (store, log) if path.exists())


def _settings(store: Store) -> Mapping[str, Any]:
    """Return the settings of the store and of its producers. Producers store their settings without secrets."""
    names = ("producer_id", "client_id", "application", "host", "version", "delivery")
    known = store.settings()
    return {
        "store": {name: known[name] for name in SETTINGS if name in known},
        "producers": [
            {**{name: row[name] for name in names}, "settings": _parsed(row["settings"])}
            for row in store.rows("producers")
        ],
    }


def _parsed(settings: str) -> Any:
    try:
        return orjson.loads(settings or "{}")
    except orjson.JSONDecodeError:
        return settings


def _json(value: Any) -> bytes:
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    return orjson.dumps(value, default=str, option=options)


def _kind(*, raw: bool) -> str:
    if raw:
        return "Raw incident bundle: keys, values, headers and error texts are unmasked."
    return "Masked incident bundle: it cannot be imported or replayed."


def _check(target: Path, *, overwrite: bool) -> None:
    if target.suffix.lower() != ".zip":
        raise TransferError(f"{target} is not a zip file.", fix="Choose a name that ends with .zip.")
    with transfer_errors(target):
        if target.is_dir():
            raise TransferError(f"{target} is a folder.", fix="Specify a file in it.")
        if target.exists() and not overwrite:
            raise already_exists(target)

"""Export a time range of a store to an incident bundle, as one audited operation."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from producer_core import __version__
from producer_core._internal import private_files
from producer_core._internal.masking import mask, mask_text
from producer_core.diagnostics.incident import bundle, excerpt, facts, manifest, page
from producer_core.diagnostics.incident.manifest import BundledFile, BundleManifest
from producer_core.diagnostics.incident.window import IncidentWindow
from producer_core.dlq import DeadLetterFilter, lookup
from producer_core.dlq import files as dead_letter_files
from producer_core.dlq.files.atomic_file import atomic_file, transfer_errors
from producer_core.dlq.files.exporter import EXPORTED
from producer_core.errors import StoreError, TransferError
from producer_core.store import Store, generation, safe_verdicts

if TYPE_CHECKING:
    from producer_core.diagnostics.doctor.finding import DoctorFinding
    from producer_core.dlq.files.atomic_file import AtomicFile

_IDS = 1000
_CHUNK = 1 << 20
_SAFE_RATIO = bundle.MAX_RATIO // 2  # the estimate uses the fastest level
_STORE_TIMEOUT = 60.0
_EVERY_STATE = DeadLetterFilter(state=None)


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
    one is in the file, and its dead letters cannot be replayed. A `raw` bundle has all bytes and can be imported elsewhere;
    afterwards no verdict of these dead letters says here that a resend is safe. The export copies the store to the
    temporary folder first, which needs room for it. `findings` are those of the doctor. The audit log of the store records
    the export, even a failed one. Raise TransferError or StoreError on failure.
    """
    job = _BundleJob(store, Path(target), window, who, origin, raw, clock)
    try:
        return job.run(list(findings), overwrite=overwrite)
    except BaseException as error:
        with contextlib.suppress(StoreError):
            job.audit(0, f"Failed; no file was written: {error or type(error).__name__}")
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
        _check(self.target, overwrite=overwrite)
        now = self.clock()
        with _work_folder() as folder, atomic_file(self.target) as file:
            self._write_store(folder, now)
            self._write_facts(folder, findings, now)
            described = self._manifest(folder, now)
            _write_zip(file, folder, described)
            file.sync()
            if self.raw:
                self._revoke_safe_verdicts(folder / manifest.STORE)
            letters = described.counts.get("dead_letters", 0)
            self.audit(letters, f"{_kind(raw=self.raw)} sha256 {file.sha256}")
            file.publish()
        return described

    def audit(self, count: int, outcome: str) -> None:
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="incident",
            selection={
                "since": self.window.since,
                "until": self.window.until,
                "file": str(self.target),
                "masked": not self.raw,
            },
            count=count,
            outcome=outcome,
        )

    def _write_store(self, folder: Path, now: float) -> None:
        whole, target = folder / "whole.duckdb", folder / manifest.STORE
        self.store.snapshot(whole)
        excerpt.write_excerpt(whole, target, self.window, masked=not self.raw)
        whole.unlink()
        if self.raw:
            self._write_dead_letters(target, folder)
        facts.make_read_only(target, self.window, masked=not self.raw, now=now)

    def _write_dead_letters(self, source: Path, folder: Path) -> None:
        """Write the file with which the dead letters are imported, from a copy of the store, which the export changes."""
        copy = Path(shutil.copyfile(source, folder / "copy.duckdb"))
        generation.adopt(copy, source)
        opened = Store.open(copy, create=False)
        try:
            dead_letter_files.export(
                opened,
                _EVERY_STATE,
                folder / manifest.DEAD_LETTERS,
                who=self.who,
                origin=self.origin,
                masked=False,
                clock=self.clock,
            )
        finally:
            opened.close()
        copy.unlink()

    def _write_facts(self, folder: Path, findings: Sequence[DoctorFinding], now: float) -> None:
        with contextlib.closing(Store.open(folder / manifest.STORE, create=False)) as opened:
            doctor = [asdict(finding) for finding in findings]
            _write_json(folder / manifest.DOCTOR, mask(doctor))
            _write_json(folder / manifest.SETTINGS, mask(_settings(opened)))
            text = page.render(opened, self.window, findings, now=now, masked=not self.raw)
        private_files.write(folder / manifest.PAGE, text)

    def _manifest(self, folder: Path, now: float) -> BundleManifest:
        names = (*manifest.REQUIRED, *(manifest.RAW_ONLY if self.raw else ()))
        files = {name: BundledFile.of(folder / name) for name in names}
        if sum(file.size for file in files.values()) > bundle.MAX_BYTES:
            raise TransferError(
                f"The incident has more than {bundle.MAX_BYTES >> 30} GiB.", fix="Choose a shorter range."
            )
        return BundleManifest(
            since=self.window.since,
            until=self.window.until,
            masked=not self.raw,
            counts=excerpt.row_counts(folder / manifest.STORE),
            files=files,
            product_version=__version__,
            created_at=now,
            created_by=self.who if self.raw else mask_text(self.who),
            origin=self.origin,
        )

    def _revoke_safe_verdicts(self, exported: Path) -> None:
        """Another store can import the bundle and replay its dead letters, so none here is safe to resend any more."""
        for ids in _message_ids(exported):
            with self.store.borrow(write=True, timeout=_STORE_TIMEOUT) as connection:
                safe_verdicts.revoke(connection, EXPORTED, *lookup.id_in(ids))


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """Yield a folder for this user only. It has unmasked content until the end of the block."""
    with transfer_errors(Path(tempfile.gettempdir()) / "incident"):
        folder = tempfile.TemporaryDirectory(prefix="producer-core-incident-")
    with folder as name:
        yield Path(name)


def _message_ids(path: Path) -> Iterator[list[str]]:
    with contextlib.closing(Store.open(path, create=False)) as opened:
        with opened.borrow(limit=_STORE_TIMEOUT) as connection:
            found = connection.execute("SELECT message_id FROM dead_letters ORDER BY message_id").fetchall()
    for first in range(0, len(found), _IDS):
        yield [message_id for (message_id,) in found[first : first + _IDS]]


def _write_zip(file: AtomicFile, folder: Path, described: BundleManifest) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(manifest.MANIFEST, described.to_json())
        for name in described.files:
            archive.write(folder / name, name, compress_type=_method(folder / name))


def _method(path: Path) -> int:
    """Return how to compress a file. One that compresses like a bomb stays uncompressed, so that readers accept it."""
    size = path.stat().st_size
    if size <= bundle.RATIO_FROM:
        return zipfile.ZIP_DEFLATED
    compressor, compressed = zlib.compressobj(1), 0
    with path.open("rb") as data:
        while chunk := data.read(_CHUNK):
            compressed += len(compressor.compress(chunk))
    compressed += len(compressor.flush())
    return zipfile.ZIP_STORED if size > _SAFE_RATIO * compressed else zipfile.ZIP_DEFLATED


def _settings(store: Store) -> Mapping[str, Any]:
    """Return the settings of the store and of its producers. Producers store their settings without secrets."""
    producers = store.rows("producers")
    names = ("producer_id", "client_id", "application", "host", "version", "delivery")
    return {
        "store": {name: value for name, value in store.settings().items() if name != facts.SETTING},
        "producers": [
            {**{name: row[name] for name in names}, "settings": _parsed(row["settings"])} for row in producers
        ],
    }


def _parsed(settings: str) -> Any:
    try:
        return orjson.loads(settings or "{}")
    except orjson.JSONDecodeError:
        return settings


def _write_json(path: Path, value: Any) -> None:
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    private_files.write(path, orjson.dumps(value, default=str, option=options))


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
            raise TransferError(f"{target} already exists.", fix="Choose another name, or use --overwrite.")

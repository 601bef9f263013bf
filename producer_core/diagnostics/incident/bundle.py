"""Verify an incident bundle and extract it to a private temporary folder. A bundle may come from anywhere.

Every size is checked before anything is written, and every hash before anything is used. The names of files are fixed, so no
entry can choose a path.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from producer_core._internal import private_files
from producer_core.diagnostics.incident.content_check import check_content
from producer_core.diagnostics.incident.manifest import (
    MANIFEST,
    RAW_ONLY,
    REQUIRED,
    STORE,
    BundledFile,
    BundleManifest,
    not_a_bundle,
)
from producer_core.errors import TransferError

if TYPE_CHECKING:
    from producer_core.store import Store

MAX_BYTES = 8 << 30
"""Bytes of all extracted files together."""
MAX_MANIFEST = 1 << 20
MAX_RATIO, RATIO_FROM = 200, 64 << 20
"""A file above this size may be at most this many times larger than its compressed form. Real stores are below 20."""

_KNOWN = (MANIFEST, *REQUIRED, *RAW_ONLY)
_CHUNK = 1 << 20
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_bundle(path: Path | str) -> bool:
    """Whether a path names a bundle by its file name."""
    return Path(path).suffix.lower() == ".zip"


class IncidentBundle:
    """An extracted bundle. `store` is read-only; `close` deletes the extracted files.

    Raise TransferError for a file that is not a bundle, is damaged, has another content than its manifest says, or has a
    later format; StoreTooNew for a later schema of the store.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        folder = Path(tempfile.mkdtemp(prefix="producer-core-incident-"))  # mode 0700
        self._delete = weakref.finalize(self, _delete, folder, os.getpid())
        self.folder = folder
        self._store: Store | None = None
        try:
            self.manifest = _extract(self.path, folder)
            check_content(folder / STORE, str(self.path))
        except BaseException:
            self._delete()
            raise

    @property
    def store_path(self) -> Path:
        return self.folder / STORE

    @property
    def store(self) -> Store:
        """Return the store of the bundle, which is read-only."""
        if self._store is None:
            from producer_core.store import Store

            self._store = Store.open(self.store_path, create=False)
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._delete()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _delete(folder: Path, pid: int) -> None:
    """Delete the extracted files. A forked child leaves them to its parent."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _extract(path: Path, folder: Path) -> BundleManifest:
    with _opened(path) as archive:
        entries = _entries(archive, path)
        data = _read_manifest(archive, entries, path)
        manifest = BundleManifest.from_json(data, str(path))
        _check_files(entries, manifest, path)
        _check_space(manifest, folder)
        for name, expected in manifest.files.items():
            _write(archive, entries[name], expected, folder / name, path)
    private_files.write(folder / MANIFEST, data)
    return manifest


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if not path.is_file():
        raise TransferError(f"The file {path} does not exist.")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise not_a_bundle(str(path)) from error
    except OSError as error:
        raise TransferError(f"{path} cannot be read ({error.strerror or error}).") from error


def _entries(archive: zipfile.ZipFile, path: Path) -> Mapping[str, zipfile.ZipInfo]:
    """Return the entries by name. Raise TransferError for an entry that no bundle has."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        # `filename` is normalized; the original name may have another path
        if entry.filename not in _KNOWN or entry.orig_filename != entry.filename:
            raise _refused(path, f"it has an entry {entry.orig_filename!r:.80}")
        if entry.filename in found:
            raise _refused(path, f"it has two entries {entry.filename!r}")
        mode = entry.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise _refused(path, f"{entry.filename} is not a regular file")
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise _refused(path, f"{entry.filename} is encrypted, or compressed with an unknown method")
        if entry.file_size > RATIO_FROM and entry.file_size > MAX_RATIO * max(1, entry.compress_size):
            raise _refused(
                path, f"{entry.filename} would be {entry.file_size:,} bytes from {entry.compress_size:,}"
            )
        found[entry.filename] = entry
    if sum(entry.file_size for entry in found.values()) > MAX_BYTES:
        raise _refused(path, f"its files have more than {MAX_BYTES >> 30} GiB")
    return found


def _read_manifest(archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], path: Path) -> bytes:
    if MANIFEST not in entries:
        raise not_a_bundle(str(path))
    with archive.open(entries[MANIFEST]) as file:
        data = file.read(MAX_MANIFEST + 1)
    if len(data) > MAX_MANIFEST:
        raise _refused(path, f"its {MANIFEST} is too long")
    return data


def _check_files(entries: Mapping[str, zipfile.ZipInfo], manifest: BundleManifest, path: Path) -> None:
    """Raise TransferError unless the archive has exactly the files of the manifest, with their sizes."""
    wanted = {*REQUIRED} if manifest.masked else {*REQUIRED, *RAW_ONLY}
    if {*entries} - {MANIFEST} != wanted or {*manifest.files} != wanted:
        raise _refused(path, "its files are not those of its manifest")
    for name, expected in manifest.files.items():
        if entries[name].file_size != expected.size:
            raise _refused(path, f"{name} has {entries[name].file_size:,} bytes instead of {expected.size:,}")


def _check_space(manifest: BundleManifest, folder: Path) -> None:
    needed, free = sum(file.size for file in manifest.files.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise TransferError(
            f"The files of the bundle need {needed:,} bytes in {folder.parent}, which has {free:,} free.",
            fix="Free up disk space, or set TMPDIR to a folder with more.",
        )


def _write(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, expected: BundledFile, target: Path, path: Path
) -> None:
    """Extract one file, and at most its number of bytes."""
    digest, left = hashlib.sha256(), expected.size
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, private_files.FILE)
    with os.fdopen(handle, "wb") as file, archive.open(entry) as source:
        while chunk := source.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise _refused(path, f"{entry.filename} is longer than its manifest says")
            digest.update(chunk)
            file.write(chunk)
    if left or digest.hexdigest() != expected.sha256:
        raise _refused(path, f"the sha256 of {entry.filename} differs from that of its manifest")


def _refused(path: Path, problem: str) -> TransferError:
    return TransferError(
        f"{path} was not opened: {problem}.", fix="Copy it again from a source that you trust."
    )

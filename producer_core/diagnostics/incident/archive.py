"""Read the zip file of a bundle. A bundle may come from anywhere.

The names of files are fixed, so no entry can choose a path. Every number of bytes and rows is bounded, by fixed maxima and
by the manifest, before anything is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from producer_core.diagnostics.incident.manifest import (
    DEAD_LETTERS,
    DEAD_LETTERS_MANIFEST,
    MANIFEST,
    MAX_BYTES,
    MAX_FILE,
    MAX_ROWS,
    RAW_ONLY,
    REQUIRED,
    TABLES,
    BundleManifest,
    not_a_bundle,
)
from producer_core.diagnostics.incident.table_lines import Rows, read_rows
from producer_core.errors import TransferError

MAX_MANIFEST = 1 << 20

_KNOWN = (MANIFEST, *REQUIRED, DEAD_LETTERS, DEAD_LETTERS_MANIFEST, *TABLES.values())
_CHUNK = 1 << 20
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_END = struct.Struct("<4s4H2LH")
"""The last bytes of a zip file: signature, two disks, two numbers of entries, size and place of the directory, comment."""
_LOCATOR = b"PK\6\7"
_MAX_DIRECTORY = 64 << 10
_INVALID = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError),
    *(RuntimeError, ValueError, KeyError, OverflowError, MemoryError),
)
"""The errors of the standard library for a file that is not what it seems."""


@dataclass(frozen=True)
class BundleArchive:
    """An open bundle. Reading a file verifies its size and hash; reading rows verifies each value and their number."""

    path: Path
    manifest: BundleManifest
    archive: zipfile.ZipFile

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file. Raise TransferError, at its end at the latest, if it is not that of the manifest."""
        expected, digest = self.manifest.files[name], hashlib.sha256()
        left = expected.size
        with translated(self.path), self.archive.open(name) as source:
            while chunk := source.read(_CHUNK):
                left -= len(chunk)
                if left < 0:
                    raise _refused(self.path, f"{name} is longer than its manifest says")
                digest.update(chunk)
                yield chunk
        if left or digest.hexdigest() != expected.sha256:
            raise _refused(self.path, f"the sha256 of {name} differs from that of its manifest")

    def rows(self) -> Iterator[tuple[str, Sequence[str], Rows]]:
        """Yield table, names of the columns and rows in batches."""
        for table, name in TABLES.items():
            if name not in self.manifest.files:
                continue
            left = self.manifest.counts[table]
            for names, rows in read_rows(self.chunks(name), table, f"{self.path}, {name}"):
                left -= len(rows)
                if left < 0:
                    break
                yield table, names, rows
            if left:
                raise _refused(self.path, f"{name} does not have the number of rows of its manifest")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BundleArchive]:
    """Open a bundle for the block. Raise TransferError for a file that is not a bundle or has a later format."""
    if not path.is_file():
        raise TransferError(f"The file {path} does not exist.")
    with translated(path):
        file = path.open("rb")
    with file:
        with translated(path):
            _check_directory(file.fileno(), path)
            archive = zipfile.ZipFile(file)
            entries = _entries(archive, path)
            manifest = BundleManifest.from_json(_read_manifest(archive, entries, path), str(path))
            _check_files(entries, manifest, path)
        with archive:
            yield BundleArchive(path, manifest, archive)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise an error about the file as a TransferError."""
    try:
        yield
    except TransferError:
        raise
    except _INVALID as error:
        raise not_a_bundle(str(path)) from error
    except OSError as error:
        raise TransferError(f"{path} cannot be read ({error.strerror or error}).") from error


def _check_directory(file: int, path: Path) -> None:
    """Raise TransferError unless the directory of the zip file is short: the standard library reads it whole."""
    size = os.fstat(file).st_size
    tail = os.pread(file, _END.size + 20, max(0, size - _END.size - 20))
    if len(tail) < _END.size + 20 or tail[:4] == _LOCATOR or size > MAX_FILE:
        raise not_a_bundle(str(path))
    signature, _, _, _, _, length, _, comment = _END.unpack(tail[20:])
    if signature != b"PK\5\6" or comment or length > _MAX_DIRECTORY:
        raise not_a_bundle(str(path))


def _entries(archive: zipfile.ZipFile, path: Path) -> Mapping[str, zipfile.ZipInfo]:
    """Return the entries by name. Raise TransferError for an entry that no bundle has."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        # `filename` is normalized; the original name may have another path
        if entry.filename not in _KNOWN or entry.orig_filename != entry.filename:
            raise _refused(path, f"it has an entry {entry.orig_filename!r:.80}")
        if entry.filename in found:
            raise _refused(path, f"it has two entries {entry.filename!r}")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise _refused(path, f"{entry.filename} is not a regular file")
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise _refused(path, f"{entry.filename} is encrypted, or compressed with an unknown method")
        found[entry.filename] = entry
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
    """Raise TransferError unless the archive has exactly the files of the manifest, and all numbers are within bounds."""
    tables = {name for table, name in TABLES.items() if table in manifest.counts}
    wanted = {*REQUIRED, *tables, *(() if manifest.masked else RAW_ONLY)}
    if {*entries} - {MANIFEST} != wanted or {*manifest.files} != wanted or {*manifest.counts} - {*TABLES}:
        raise _refused(path, "its files are not those of its manifest")
    sizes = [file.size for file in manifest.files.values()]
    if sum(sizes) > MAX_BYTES or max(sizes) > MAX_FILE:
        raise _refused(path, f"its files have more than {MAX_BYTES >> 30} GiB")
    if (rows := sum(manifest.counts.values())) > MAX_ROWS:
        raise _refused(path, f"it has {rows:,} rows, more than {MAX_ROWS:,}")
    for name, expected in manifest.files.items():
        if entries[name].file_size != expected.size:
            raise _refused(path, f"{name} has {entries[name].file_size:,} bytes instead of {expected.size:,}")


def _refused(path: Path, problem: str) -> TransferError:
    return TransferError(
        f"{path} was not opened: {problem}.", fix="Copy it again from a source that you trust."
    )

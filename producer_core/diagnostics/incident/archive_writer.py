"""Write the zip file of a bundle, one file after the other."""

from __future__ import annotations

import contextlib
import hashlib
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from producer_core._internal import private_files
from producer_core.diagnostics.incident.manifest import MAX_BYTES, MAX_FILE, BundledFile
from producer_core.errors import TransferError

_CHUNK = 1 << 20
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of all files: zip files have local times, which would reveal the time zone of the machine."""


class ArchiveWriter:
    """Adds files to a zip file, which may exist with the files `known`, and notes the size and hash of each.

    `before_write` is called before each MiB.
    """

    def __init__(
        self, path: Path, before_write: Callable[[], None], *, known: Mapping[str, BundledFile] | None = None
    ) -> None:
        self.files = {**(known or {})}
        self._before_write = before_write
        self._archive = zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, allowZip64=False)
        path.chmod(private_files.FILE)

    def add(self, name: str, chunks: Iterable[bytes]) -> None:
        """Add a file. Raise TransferError if readers would refuse the bundle for its size."""
        digest, size, unchecked = hashlib.sha256(), 0, 0
        rest = MAX_BYTES - sum(file.size for file in self.files.values())
        with _bounded(), self._archive.open(_entry(name), "w") as file:
            for chunk in chunks:
                size, unchecked = size + len(chunk), unchecked + len(chunk)
                if size > min(MAX_FILE, rest):
                    raise too_large()
                if unchecked >= _CHUNK:
                    self._before_write()
                    unchecked = 0
                digest.update(chunk)
                file.write(chunk)
        self.files[name] = BundledFile(size=size, sha256=digest.hexdigest())

    def close(self) -> None:
        """Write the directory of the zip file."""
        with _bounded():
            self._archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.nullcontext() if error is None else contextlib.suppress(Exception):
            self.close()


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file."""
    with path.open("rb") as data:
        while chunk := data.read(_CHUNK):
            yield chunk


def too_large() -> TransferError:
    return TransferError("The incident is larger than a bundle can be.", fix="Choose a shorter range.")


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except zipfile.LargeZipFile as error:
        raise too_large() from error


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _FIRST_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | private_files.FILE) << 16
    return entry

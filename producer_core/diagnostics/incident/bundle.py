"""Open an incident bundle: verify it, build its store, and extract the dead letters of a raw one for an import."""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from producer_core._internal import private_files
from producer_core._internal.home_folder import expand_user
from producer_core._internal.work_folder import WorkFolder
from producer_core.diagnostics.incident import archive
from producer_core.diagnostics.incident.build_store import build_store
from producer_core.diagnostics.incident.manifest import DEAD_LETTERS, RAW_ONLY, TABLES
from producer_core.dlq.files.atomic_file import transfer_errors
from producer_core.errors import TransferError

if TYPE_CHECKING:
    from producer_core.store import Store

_STORE = "store.duckdb"


def is_bundle(path: Path | str) -> bool:
    """Whether a path names a bundle by its file name."""
    return Path(path).suffix.lower() == ".zip"


class IncidentBundle:
    """An open bundle. `store` is read-only and built from the rows of the bundle in a private folder.

    The folder is `beside` a file, by default in the temporary folder; `close` deletes it. Each method verifies what it
    reads, against the manifest and the schema. Raise TransferError for a file that is not a bundle, is damaged, has
    another content than its manifest says, or has a later format.
    """

    def __init__(self, path: Path | str, *, beside: Path | None = None) -> None:
        self.path = expand_user(path)
        self._beside = beside
        self._open = contextlib.ExitStack()
        self._archive = self._open.enter_context(archive.opened(self.path))
        self.manifest = self._archive.manifest
        self._store: Store | None = None

    @cached_property
    def store_path(self) -> Path:
        """Return the path of the store, which is built at the first call."""
        return self._built().path

    @property
    def store(self) -> Store:
        """Return the store of the bundle, which is read-only. Its file exists as long as this object or the store does."""
        return self._built()

    @cached_property
    def dead_letters(self) -> Path:
        """Return the path of the dead letters of a raw bundle, with their manifest beside it."""
        if self.manifest.masked:
            raise TransferError(
                f"{self.path} is masked, so its dead letters cannot be imported.",
                fix="Export the incident again with --raw.",
            )
        self._folder.ensure_free(sum(self.manifest.files[name].size for name in RAW_ONLY))
        for name in RAW_ONLY:
            target = self._folder.path / name
            private_files.write(target, b"")
            with transfer_errors(target), target.open("wb") as file:
                for chunk in self._archive.chunks(name):
                    file.write(chunk)
        return self._folder.path / DEAD_LETTERS

    def verify(self) -> None:
        """Read the whole bundle. Raise TransferError for the first problem."""
        for name in {*self.manifest.files} - {*TABLES.values()}:
            for _ in self._archive.chunks(name):
                pass
        for _ in self._archive.rows():
            pass

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _folder(self) -> WorkFolder:
        with transfer_errors(Path(tempfile.gettempdir()) / _STORE if self._beside is None else self._beside):
            folder = WorkFolder(self._beside)
        self._open.callback(folder.close)
        return folder

    def _built(self) -> Store:
        if self._store is None:
            from producer_core.store import Store

            target = self._folder.path / _STORE
            self._folder.ensure_free(sum(file.size for file in self.manifest.files.values()))
            try:
                build_store(target, self._archive)
                self._store = Store.open(target, create=False)
            except BaseException:
                self.close()  # now, although the error may keep this object alive
                raise
            weakref.finalize(self._store, self._folder.close)
        return self._store

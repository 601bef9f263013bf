"""Write a file under a hidden name and rename it once it is complete."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from producer_core._internal.file_lock import try_lock
from producer_core.errors import TransferError

_SUFFIX = ".part"


class AtomicFile:
    """A file under a hidden name beside its target, readable only by its owner. Counts and hashes the bytes written.

    Files that killed processes left for the same target are removed. A running process holds a lock on its file.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.size = 0
        self._digest = hashlib.sha256()
        self._prefix = f".{target.name}."
        self._remove_leftovers()
        self.path, self._file = self._open()

    # the file interface that pyarrow needs

    def write(self, data: bytes) -> int:
        rest = memoryview(data).cast("B")
        self.size += len(rest)
        self._digest.update(rest)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Do nothing; writes are not buffered."""

    @property
    def closed(self) -> bool:
        return self._file < 0

    def close(self) -> None:
        """Do nothing, because writers call this; `publish` and `discard` close the file."""

    # publishing

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def sync(self) -> None:
        """Sync the file to disk under its hidden name. A full disk raises here at the latest."""
        os.fsync(self._file)

    def publish(self, *, overwrite: bool = True) -> None:
        """Rename the file to its target. Without `overwrite`, raise TransferError if the target exists by now."""
        if overwrite:
            self.path.replace(self.target)
        else:
            _rename_to_new(self.path, self.target)
        self._close()
        _sync_folder(self.target.parent)

    def discard(self) -> None:
        """Delete the file. After `publish` this does nothing."""
        if not self.closed:
            self.path.unlink(missing_ok=True)
            self._close()

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1

    def _open(self) -> tuple[Path, int]:
        while True:
            file, name = tempfile.mkstemp(_SUFFIX, self._prefix, self.target.parent)
            _lock(file)
            if Path(name).exists():  # another process may have removed it before it was locked
                return Path(name), file
            os.close(file)

    def _remove_leftovers(self) -> None:
        for path in self.target.parent.iterdir():
            if path.name.startswith(self._prefix) and path.name.endswith(_SUFFIX):
                _remove_if_unlocked(path)


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[AtomicFile]:
    """Open a file for the block, and delete it at the end if the block has not published it."""
    with transfer_errors(target):
        file = AtomicFile(target)
        try:
            yield file
        finally:
            file.discard()


@contextlib.contextmanager
def transfer_errors(target: Path) -> Iterator[None]:
    """Raise an OSError of the block as a TransferError with advice."""
    try:
        yield
    except OSError as error:
        raise _transfer_error(target, error) from error


def already_exists(target: Path) -> TransferError:
    return TransferError(f"{target} already exists.", fix="Choose another name, or use --overwrite.")


def _rename_to_new(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except FileExistsError as error:
        raise already_exists(target) from error
    except OSError:  # a file system without hard links
        path.replace(target)
    else:
        path.unlink()


def _transfer_error(target: Path, error: OSError) -> TransferError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return TransferError(
            f"The disk of {target} is full. No file was written.",
            fix="Free up disk space, choose another folder, or select fewer dead letters.",
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return TransferError(
            f"The folder {target.parent} does not exist.", fix="Create it, or choose another."
        )
    return TransferError(f"{target} cannot be written ({error.strerror or error}).")


def _lock(file: int) -> bool:
    with contextlib.suppress(OSError):  # not every file system has locks
        return try_lock(file)
    return False


def _remove_if_unlocked(path: Path) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDWR)
        try:
            if _lock(file):
                path.unlink()
        finally:
            os.close(file)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems do not support it
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

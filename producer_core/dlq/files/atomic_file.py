"""A file that appears under its name when it is whole, and not before."""

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

_ENDING = ".part"


class AtomicFile:
    """Written beside its place under a hidden name, for the owner's eyes alone; counts and hashes what it is given.

    What a killed process left of a draft for the same place is removed by the next one; a living one's is not: it
    holds a lock.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.size = 0
        self._digest = hashlib.sha256()
        self._beginning = f".{target.name}."
        self._sweep()
        self.path, self._file = self._begin()

    # the face of a file, which is all that pyarrow asks for

    def write(self, data: bytes) -> int:
        left = memoryview(data).cast("B")
        self.size += len(left)
        self._digest.update(left)
        while left:
            left = left[os.write(self._file, left) :]
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Every write has reached the system already."""

    @property
    def closed(self) -> bool:
        return self._file < 0

    def close(self) -> None:
        """A writer that is done with it does not end it: `publish` or `discard` does."""

    # its end

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def sync(self) -> None:
        """On disk, still under its hidden name: a full disk shows now at the latest."""
        os.fsync(self._file)

    def publish(self) -> None:
        self.path.replace(self.target)
        self._end()
        _sync_folder(self.target.parent)

    def discard(self) -> None:
        """Nothing is left of it. After `publish` it does nothing."""
        if not self.closed:
            self.path.unlink(missing_ok=True)
            self._end()

    def _end(self) -> None:
        os.close(self._file)
        self._file = -1

    def _begin(self) -> tuple[Path, int]:
        while True:
            file, name = tempfile.mkstemp(_ENDING, self._beginning, self.target.parent)
            _lock(file)
            if Path(name).exists():  # nobody swept it before it was locked
                return Path(name), file
            os.close(file)

    def _sweep(self) -> None:
        for path in self.target.parent.iterdir():
            if path.name.startswith(self._beginning) and path.name.endswith(_ENDING):
                _remove_if_left(path)


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[AtomicFile]:
    """A draft for the block; what was not published in it leaves nothing."""
    with saying(target):
        file = AtomicFile(target)
        try:
            yield file
        finally:
            file.discard()


@contextlib.contextmanager
def saying(target: Path) -> Iterator[None]:
    """What the system refuses, as a TransferError that says what to do."""
    try:
        yield
    except OSError as error:
        raise _refused(target, error) from error


def _refused(target: Path, error: OSError) -> TransferError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return TransferError(
            f"The disk of {target} is full. No part of the file was left.",
            fix="Free some space, choose another place, or select fewer.",
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return TransferError(f"There is no folder {target.parent}.", fix="Make it, or choose another.")
    return TransferError(f"{target} cannot be written ({error.strerror or error}).")


def _lock(file: int) -> bool:
    with contextlib.suppress(OSError):  # not every file system has locks
        return try_lock(file)
    return False


def _remove_if_left(path: Path) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDWR)
        try:
            if _lock(file):
                path.unlink()
        finally:
            os.close(file)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

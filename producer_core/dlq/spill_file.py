"""Write dead letters to a file beside the store while the store is unavailable."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.file_lock import lock_file
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.dlq.codec import read_line, write_line
from producer_core.errors import StoreFull, StoreUnavailable
from producer_core.events import DeadLetter

logger = queued_logger(__name__)


class Spill:
    """A file of JSON lines with bytes as base64, readable only by its owner. Several processes may share it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def append(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Append the dead letters and sync them to disk. Raise StoreFull or StoreUnavailable, with nothing appended."""
        if not dead_letters:
            return
        try:
            for created in private_files.make_folder(self.path.parent):
                _sync_folder(created.parent)
            with self._locked(create=True) as file:
                assert file is not None
                if not os.fstat(file).st_size:
                    _sync_folder(self.path.parent)
                _append(file, b"".join(map(write_line, dead_letters)))
        except OSError as error:
            raise _write_error(self.path, error) from error

    def take(self) -> list[DeadLetter]:
        """Return all dead letters and delete the file (at most once). Prefer `taking`, which loses none."""
        with self.taking() as dead_letters:
            return dead_letters

    @contextlib.contextmanager
    def taking(self) -> Iterator[list[DeadLetter]]:
        """Yield all dead letters and delete the file at the end of the block, unless the block raises.

        If the process is killed inside the block, the file remains and is read again; `DeadLetters.add` ignores dead
        letters that it already has. Appending is blocked until the block ends.
        """
        with self._locked(create=False) as file:
            if file is None:
                yield []
                return
            dead_letters, damaged = _read(file)
            if damaged:
                self._set_aside(damaged)
            yield dead_letters
            self.path.unlink(missing_ok=True)

    def __bool__(self) -> bool:
        """Return whether the file exists."""
        return self.path.exists()

    @contextlib.contextmanager
    def _locked(self, *, create: bool) -> Iterator[int | None]:
        """Yield the exclusively locked file, or None without one. The kernel releases the lock of a killed process."""
        if sys.platform == "win32":
            raise StoreUnavailable(
                "The spill file needs file locks, which Windows does not support.", fix="Use WSL."
            )
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        try:
            lock = lock_file(self.path, flags=flags)
        except FileNotFoundError:
            if create:
                raise
            yield None
            return
        with lock:
            yield lock.descriptor

    def _set_aside(self, lines: Sequence[bytes]) -> None:
        aside = self.path.with_name(self.path.name + ".damaged")
        file = os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(file, "ab") as kept:
            kept.write(b"\n".join([*lines, b""]))
        logger.warning(
            **with_fields("damaged lines moved out of the spill file", path=str(aside), count=len(lines))
        )


def _sync_folder(folder: Path) -> None:
    # Some file systems do not support it, and some folders are not readable.
    with contextlib.suppress(OSError):
        private_files.sync_folder(folder)


def _append(file: int, data: bytes) -> None:
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        data = b"\n" + data  # the previous writer was killed in the middle of a line
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise


def _read(file: int) -> tuple[list[DeadLetter], list[bytes]]:
    with os.fdopen(os.dup(file), "rb") as lines:
        lines.seek(0)
        dead_letters, damaged = [], []
        for line in filter(None, map(bytes.strip, lines)):
            try:
                dead_letters.append(read_line(line))
            except ValueError:
                damaged.append(line)
    return dead_letters, damaged


def _write_error(path: Path, error: OSError) -> StoreUnavailable:
    fix = "Free up disk space or fix the folder; until then dead letters are in memory."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"The disk of the spill file {path} is full.", fix=fix)
    return StoreUnavailable(f"The spill file {path} cannot be written ({error.strerror or error}).", fix=fix)

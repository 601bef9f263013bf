"""The spill: a file beside the store where dead letters wait while the store cannot be had."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.file_lock import lock_file
from producer_core.dlq.codec import read_line, write_line
from producer_core.errors import StoreFull, StoreUnavailable
from producer_core.events import DeadLetter

logger = logging.getLogger(__name__)


class Spill:
    """JSON lines, bytes as base64, for the owner's eyes alone. Several processes may share one file."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def append(self, dead_letters: Sequence[DeadLetter]) -> None:
        """On disk when this returns; StoreFull or StoreUnavailable when it cannot be, and then nothing is added."""
        if not dead_letters:
            return
        try:
            for made in private_files.make_folder(self.path.parent):
                _sync_names(made.parent)
            with self._locked(create=True) as file:
                assert file is not None
                if not os.fstat(file).st_size:
                    _sync_names(self.path.parent)
                _append(file, b"".join(map(write_line, dead_letters)))
        except OSError as error:
            raise _refused(self.path, error) from error

    def take(self) -> list[DeadLetter]:
        """Everything that waits, and the file is gone: at most once. Prefer `taking`, which cannot lose."""
        with self.taking() as dead_letters:
            return dead_letters

    @contextlib.contextmanager
    def taking(self) -> Iterator[list[DeadLetter]]:
        """Everything that waits; the file goes when the block ends well, and stays when it does not.

        A process killed inside leaves the file for the next one: `DeadLetters.add` knows a dead letter that is
        there already. Appending waits meanwhile.
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
        """Whether anything waits."""
        return self.path.exists()

    @contextlib.contextmanager
    def _locked(self, *, create: bool) -> Iterator[int | None]:
        """The file under an exclusive lock; None when there is none. Kernel-held: a killed process lets go."""
        if sys.platform == "win32":
            raise StoreUnavailable(
                "The spill file needs file locks that Windows does not have.", fix="Use WSL."
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
            "damaged lines in the spill were set aside", extra={"path": str(aside), "count": len(lines)}
        )


def _sync_names(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can, nor is every folder readable
        private_files.sync_folder(folder)


def _append(file: int, data: bytes) -> None:
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        data = b"\n" + data  # the last writer was killed within a line
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


def _refused(path: Path, error: OSError) -> StoreUnavailable:
    fix = "Free some space or repair the folder; until then dead letters wait in memory."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"The disk of the spill file {path} is full.", fix=fix)
    return StoreUnavailable(f"The spill file {path} cannot be written ({error.strerror or error}).", fix=fix)

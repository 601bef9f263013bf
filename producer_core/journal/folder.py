"""The folder of a journal: one owner at a time, its session, and which sequences may have been given out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

from producer_core.errors import JournalDamaged, JournalError, JournalLocked
from producer_core.journal.frames import Frame, frame, frames

_BLOCK = 1 << 20
"""Sequences reserved at once: what a crash skips at most."""

_RESERVED = struct.Struct(">Q")
_IDENTITY = struct.Struct(">16sI")
_owned: set[str] = set()
"""Folders that this process has open: the kernel's lock does not tell two owners in one process apart."""


@dataclass(frozen=True)
class Identity:
    """Made once for a folder: the session of its messages' ids, and the secret its checksums start from."""

    session: uuid.UUID
    secret: int


class Folder:
    """Locked from `open` to `close`; the lock goes with the process, also when it is killed."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self.identity = self._identify()
        self.reserved = self._read_reserved()

    @classmethod
    def open(cls, path: Path | str) -> Folder:
        folder = Path(path).expanduser().absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(
                f"The journal folder {folder} cannot be used: {error.strerror}.",
                fix="Give journal_dir a folder that this user may write.",
            ) from error
        _own(folder, lock)
        try:
            return cls(folder, lock)
        except BaseException:
            _owned.discard(str(folder))
            os.close(lock)
            raise

    def reserve(self, sequence: int) -> None:
        """Make sure that no later process gives this sequence out again, before it is used."""
        if sequence >= self.reserved:
            self._write_reserved(sequence + _BLOCK)

    def close(self, next_sequence: int) -> None:
        """Give the folder free; what was reserved and not used is given back."""
        with contextlib.suppress(OSError):  # on a full disk some sequences are skipped, nothing else
            self._write_reserved(next_sequence)
        _owned.discard(str(self.path))
        os.close(self._lock)

    def sync(self) -> None:
        """Make the names of new and deleted files durable."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file so that a crash leaves the old one or the new one."""
        new = self.path / f"{name}.new"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        new.replace(self.path / name)
        self.sync()

    def _identify(self) -> Identity:
        content = self._read("session")
        if content is None:
            if any(self.path.glob("*.journal")):
                raise JournalDamaged(
                    f"The journal {self.path} has messages, but its file «session» is gone: their ids are unknown.",
                    fix="Bring the file back, or move the folder away and keep it for a person to look at.",
                )
            content = _IDENTITY.pack(uuid.uuid4().bytes, secrets.randbits(32))
            self.replace("session", frame(content, 0))
        session, secret = _IDENTITY.unpack(content)
        return Identity(uuid.UUID(bytes=session), secret)

    def _read_reserved(self) -> int:
        content = self._read("reserved")
        return 0 if content is None else int(_RESERVED.unpack(content)[0])

    def _write_reserved(self, bound: int) -> None:
        self.replace("reserved", frame(_RESERVED.pack(bound), self.identity.secret))
        self.reserved = bound

    def _read(self, name: str) -> bytes | None:
        secret = 0 if name == "session" else self.identity.secret
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        found = next(frames(data, secret), None)
        if not isinstance(found, Frame):
            raise JournalDamaged(
                f"The journal's file {self.path / name} is damaged.",
                fix="Move the folder away and keep it for a person to look at; a new one is made.",
            )
        return found.content


def _own(folder: Path, lock: int) -> None:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = str(folder) not in _owned
    except OSError:
        mine = False
    if not mine:
        owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        if owner != str(os.getpid()):  # closing any handle of the file would drop this process's own lock
            os.close(lock)
        raise JournalLocked(
            f"The journal {folder} belongs to process {owner}.",
            fix="Stop that process, or give this producer a journal_dir of its own.",
        )
    _owned.add(str(folder))
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)

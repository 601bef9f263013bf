"""The folder of a journal: its owner, its session, and which sequences may have been given out."""

from __future__ import annotations

import contextlib
import secrets
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

from producer_core.errors import JournalDamaged
from producer_core.journal.disk import replace, sync_folder
from producer_core.journal.frames import Frame, frame, frames, seed
from producer_core.journal.lock import Lock
from producer_core.messages import new_session

_BLOCK = 1 << 20
"""Sequences reserved at once: what a crash skips at most."""
_APART = 4096
"""The second copy of a small file's content stands in another sector."""

_RESERVED = struct.Struct(">Q")
_IDENTITY = struct.Struct(">16sI")


@dataclass(frozen=True)
class Identity:
    """Made once for a folder: the session of its messages' ids, and the secret its checksums start from."""

    session: uuid.UUID
    secret: int


class Folder:
    """Locked from its making to `close`; the lock goes with the process, also when it is killed."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().absolute()
        if not self.path.is_dir():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self.path.parent)
        self._lock = Lock(self.path)
        try:
            self.identity = self._identify()
            self._reserved = self._read_reserved()
        except BaseException:
            self._lock.release()
            raise

    @property
    def in_place(self) -> bool:
        return self._lock.in_place

    def seed(self, name: str) -> int:
        return seed(self.identity.secret, name)

    def next_sequence(self, known: int) -> int:
        """Above everything that may have been given out, when all below `known` is known to have been."""
        if self._reserved is None:  # lost: then it was no further ahead than this
            return known and known + _BLOCK
        return max(known, self._reserved)

    def reserve(self, sequence: int) -> None:
        """Make sure that no later process gives this sequence out again, before it is used."""
        if sequence >= (self._reserved or 0):
            self._write_reserved(sequence + _BLOCK)

    def close(self, next_sequence: int | None = None) -> None:
        """Give the folder free, and, when the next one is given, back what was reserved and not used."""
        if next_sequence is not None and next_sequence != self._reserved:
            with contextlib.suppress(OSError):  # on a full disk some sequences are skipped, nothing else
                self._write_reserved(next_sequence)
        self._lock.release()

    def sync(self) -> None:
        sync_folder(self.path)

    def _identify(self) -> Identity:
        content = self._read("session", 0)
        if content is None:
            if any(self.path.glob("*.journal")):
                raise JournalDamaged(
                    f"The journal {self.path} has messages, but its file «session» is gone: their ids are unknown.",
                    fix="Bring the file back, or move the folder away and keep it for a person to look at.",
                )
            content = _IDENTITY.pack(new_session().bytes, secrets.randbits(32))
            self._write("session", content, 0)
        session, secret = _IDENTITY.unpack(content)
        return Identity(uuid.UUID(bytes=session), secret)

    def _read_reserved(self) -> int | None:
        try:
            content = self._read("reserved", self.seed("reserved"))
        except JournalDamaged:
            return None
        return None if content is None else int(_RESERVED.unpack(content)[0])

    def _write_reserved(self, bound: int) -> None:
        self._write("reserved", _RESERVED.pack(bound), self.seed("reserved"))
        self._reserved = bound

    def _write(self, name: str, content: bytes, seed: int) -> None:
        replace(self.path / name, frame(content, seed, 0).ljust(_APART, b"\0") + frame(content, seed, _APART))

    def _read(self, name: str, seed: int) -> bytes | None:
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        for found in frames(data, seed):
            if isinstance(found, Frame):
                return found.content
        raise JournalDamaged(
            f"Both copies in the journal's file {self.path / name} are damaged.",
            fix="Move the folder away and keep it for a person to look at; a new one is made.",
        )

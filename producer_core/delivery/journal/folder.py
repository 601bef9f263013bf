"""The folder of a journal: its owner, its sessions, and which sequences may have been given out."""

from __future__ import annotations

import contextlib
import secrets
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from producer_core._internal import private_files
from producer_core.delivery.journal.file_writes import replace as replace_file
from producer_core.delivery.journal.folder_lock import FolderLock
from producer_core.delivery.journal.frame import JournalFrame, frame, frames, seed
from producer_core.errors import JournalDamaged
from producer_core.messages import MessageIds, SequenceSpan, new_session

_BLOCK = 1 << 20
"""Sequences reserved at once: what a crash skips at most."""
_APART = 4096
"""The second copy of a small file's content stands in another sector."""

_RESERVED = struct.Struct(">Q")
_IDENTITY = struct.Struct(">16sI")
_SPAN = struct.Struct(">QQ16s")
_OPEN = (1 << 64) - 1
"""The end of a span whose session has not ended."""


@dataclass(frozen=True)
class JournalIdentity:
    """The content of the file `session`. `id` and `secret`, which checksums start from, are made once for a folder.

    `spans` are the sessions of earlier starts with their sequences, in order. A folder without any has ids of one
    session only, which is `id`: earlier versions kept one for all starts.
    """

    id: uuid.UUID
    secret: int
    spans: tuple[SequenceSpan, ...]

    def encode(self) -> bytes:
        spans = [_SPAN.pack(start, end, session.bytes) for start, end, session in self.spans]
        return b"".join((_IDENTITY.pack(self.id.bytes, self.secret), *spans))

    @classmethod
    def decode(cls, content: bytes) -> JournalIdentity:
        raw, secret = _IDENTITY.unpack_from(content)
        id = uuid.UUID(bytes=raw)
        unpacked = _SPAN.iter_unpack(content[_IDENTITY.size :])
        spans = tuple(SequenceSpan(start, end, uuid.UUID(bytes=session)) for start, end, session in unpacked)
        return cls(id, secret, spans or (SequenceSpan(0, _OPEN, id),))


class JournalFolder:
    """Locked from its making to `close`; the lock goes with the process, also when it is killed.

    Every start gets a new session, so that a folder that was put back from a copy gives no id a second time.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().absolute()
        for made in private_files.make_folder(self.path):
            private_files.sync_folder(made.parent)
        self._lock = FolderLock(self.path)
        try:
            self.identity = self._identify()
            self._reserved = self._read_reserved()
            self._begun = False  # the file has the session of this start
            self._free = 0  # sequences below it may be used
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

    def begin(self, first: int, needed: Callable[[int, int], bool]) -> MessageIds:
        """Return the ids of this start, whose first sequence is `first`.

        An earlier session is kept while the files have a record of it: `needed(start, end)` of its sequences.
        """
        known = (span._replace(end=min(span.end, first)) for span in self.identity.spans)
        earlier = tuple(span for span in known if needed(span.start, span.end))
        session = new_session()
        self.identity = replace(self.identity, spans=(*earlier, SequenceSpan(first, _OPEN, session)))
        return MessageIds(session, first=first, earlier=earlier)

    def reserve(self, sequence: int) -> None:
        """Make sure that no later process gives this sequence or its id out again, before it is used."""
        if sequence >= self._free:
            if not self._begun:
                self._write("session", self.identity.encode(), 0)
                self._begun = True
            self._write_reserved(sequence + _BLOCK)
            self._free = sequence + _BLOCK

    def close(self, next_sequence: int | None = None) -> None:
        """Give the folder free, and, when the next one is given, back what was reserved and not used."""
        if next_sequence is not None and next_sequence != self._reserved:
            with contextlib.suppress(OSError):  # on a full disk some sequences are skipped, nothing else
                self._write_reserved(next_sequence)
        self._lock.release()

    def sync(self) -> None:
        private_files.sync_folder(self.path)

    def _identify(self) -> JournalIdentity:
        content = self._read("session", 0)
        if content is None:
            if any(self.path.glob("*.journal")):
                raise JournalDamaged(
                    f"The journal {self.path} has messages, but its file «session» is gone: their ids are unknown.",
                    fix="Bring the file back, or move the folder away and keep it for a person to look at.",
                )
            content = _IDENTITY.pack(new_session().bytes, secrets.randbits(32))
            self._write("session", content, 0)
        return JournalIdentity.decode(content)

    def keep(self, name: str, content: bytes) -> None:
        """Write a small file in one step."""
        self._write(name, content, self.seed(name))

    def kept(self, name: str) -> bytes | None:
        """Return its content; None when the file is gone or both copies are damaged."""
        try:
            return self._read(name, self.seed(name))
        except JournalDamaged:
            return None

    def _read_reserved(self) -> int | None:
        content = self.kept("reserved")
        return None if content is None else int(_RESERVED.unpack(content)[0])

    def _write_reserved(self, bound: int) -> None:
        self.keep("reserved", _RESERVED.pack(bound))
        self._reserved = bound

    def _write(self, name: str, content: bytes, seed: int) -> None:
        first = frame(content, seed, 0)
        apart = -(-len(first) // _APART) * _APART
        replace_file(self.path / name, first.ljust(apart, b"\0") + frame(content, seed, apart))

    def _read(self, name: str, seed: int) -> bytes | None:
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        for found in frames(data, seed):
            if isinstance(found, JournalFrame):
                return found.content
        raise JournalDamaged(
            f"Both copies in the journal's file {self.path / name} are damaged.",
            fix="Move the folder away and keep it for a person to look at; a new one is made.",
        )

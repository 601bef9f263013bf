"""The folder of a journal: its lock, its sessions and its reserved sequences."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.file_lock import FileLock, FileLocked, lock_file
from producer_core.delivery.journal.file_writes import replace as replace_file
from producer_core.delivery.journal.frame import JournalFrame, frame, frames, seed
from producer_core.errors import JournalDamaged, JournalLocked
from producer_core.messages import MessageIds, SequenceSpan, new_session

_RESERVE_BLOCK = 1 << 20
"""Sequences reserved in one write, and the maximum that a crash can skip."""
_COPY_ALIGNMENT = 4096
"""The second copy of a small file's content starts in another disk sector."""

_RESERVED = struct.Struct(">Q")
_IDENTITY = struct.Struct(">16sI")
_SPAN = struct.Struct(">QQ16s")
_OPEN_END = (1 << 64) - 1
"""The end of the current session's span."""


@dataclass(frozen=True)
class JournalIdentity:
    """The content of the file `session`.

    `folder_id` and `secret` are created once per folder; checksums start from `secret`. `spans` lists the sessions of
    earlier starts and their sequences, in order. Earlier versions used one session for all starts: a folder without
    spans has only ids of the session `folder_id`.
    """

    folder_id: uuid.UUID
    secret: int
    spans: tuple[SequenceSpan, ...]

    def encode(self) -> bytes:
        spans = [_SPAN.pack(start, end, session.bytes) for start, end, session in self.spans]
        return b"".join((_IDENTITY.pack(self.folder_id.bytes, self.secret), *spans))

    @classmethod
    def decode(cls, content: bytes) -> JournalIdentity:
        raw, secret = _IDENTITY.unpack_from(content)
        folder_id = uuid.UUID(bytes=raw)
        unpacked = _SPAN.iter_unpack(content[_IDENTITY.size :])
        spans = tuple(SequenceSpan(start, end, uuid.UUID(bytes=session)) for start, end, session in unpacked)
        return cls(folder_id, secret, spans or (SequenceSpan(0, _OPEN_END, folder_id),))


class JournalFolder:
    """Lock the folder of a journal until `close`. The lock ends with the process, even after `kill -9`.

    Every start uses a new session, so a folder that was restored from a backup never reuses an id.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().absolute()
        for created in private_files.make_folder(self.path):
            private_files.sync_folder(created.parent)
        self._lock = _lock(self.path)
        try:
            self.identity = self._load_identity()
            self._reserved = self._read_reserved()
            self._session_written = False  # whether the file has this start's session
            self.reserved_below = 0  # sequences below this one may be used
        except BaseException:
            self._lock.release()
            raise

    @property
    def in_place(self) -> bool:
        return self._lock.in_place

    def seed(self, name: str) -> int:
        return seed(self.identity.secret, name)

    def next_sequence(self, known: int) -> int:
        """Return a sequence above all that may have been used, assuming that all below `known` have been."""
        if self._reserved is None:  # the file is lost; its bound was at most one block ahead
            return known and known + _RESERVE_BLOCK
        return max(known, self._reserved)

    def begin_session(self, first: int, has_records: Callable[[int, int], bool]) -> MessageIds:
        """Start a session and return its ids. `first` is its first sequence.

        An earlier session is kept while `has_records(start, end)` returns true for its sequences.
        """
        known = (span._replace(end=min(span.end, first)) for span in self.identity.spans)
        earlier = tuple(span for span in known if has_records(span.start, span.end))
        session = new_session()
        self.identity = replace(self.identity, spans=(*earlier, SequenceSpan(first, _OPEN_END, session)))
        return MessageIds(session, first=first, earlier=earlier)

    def reserve(self, sequence: int) -> None:
        """Record durably that this sequence is used, before its first use, so that no later process reuses its id."""
        if sequence >= self.reserved_below:
            if not self._session_written:
                self._write("session", self.identity.encode(), 0)
                self._session_written = True
            self._write_reserved(sequence + _RESERVE_BLOCK)
            self.reserved_below = sequence + _RESERVE_BLOCK

    def close(self, next_sequence: int | None = None) -> None:
        """Unlock the folder. With `next_sequence`, release the unused part of the reservation."""
        if next_sequence is not None and next_sequence != self._reserved:
            with contextlib.suppress(OSError):  # a full disk only causes skipped sequences
                self._write_reserved(next_sequence)
        self._lock.release()

    def sync(self) -> None:
        private_files.sync_folder(self.path)

    def _load_identity(self) -> JournalIdentity:
        content = self._read("session", 0)
        if content is None:
            if any(self.path.glob("*.journal")):
                raise JournalDamaged(
                    f"The journal {self.path} has messages, but its file `session` is missing, so their ids are unknown.",
                    fix="Restore the file, or move the folder aside and keep it for analysis.",
                )
            content = _IDENTITY.pack(new_session().bytes, secrets.randbits(32))
            self._write("session", content, 0)
        return JournalIdentity.decode(content)

    def write_file(self, name: str, content: bytes) -> None:
        """Write a small file atomically."""
        self._write(name, content, self.seed(name))

    def read_file(self, name: str) -> bytes | None:
        """Return the file's content, or None when it is missing or both copies are damaged."""
        try:
            return self._read(name, self.seed(name))
        except JournalDamaged:
            return None

    def _read_reserved(self) -> int | None:
        content = self.read_file("reserved")
        return None if content is None else int(_RESERVED.unpack(content)[0])

    def _write_reserved(self, bound: int) -> None:
        self.write_file("reserved", _RESERVED.pack(bound))
        self._reserved = bound

    def _write(self, name: str, content: bytes, seed: int) -> None:
        first_copy = frame(content, seed, 0)
        copy_offset = -(-len(first_copy) // _COPY_ALIGNMENT) * _COPY_ALIGNMENT
        replace_file(
            self.path / name, first_copy.ljust(copy_offset, b"\0") + frame(content, seed, copy_offset)
        )

    def _read(self, name: str, seed: int) -> bytes | None:
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        for found in frames(data, seed):
            if isinstance(found, JournalFrame):
                return found.content
        raise JournalDamaged(
            f"Both copies in the journal file {self.path / name} are damaged.",
            fix="Move the folder aside and keep it for analysis. The producer creates a new folder.",
        )


def _lock(folder: Path) -> FileLock:
    """Lock the folder, with this process's id in the lock file."""
    try:
        lock = lock_file(folder / "lock", blocking=False)
    except FileLocked as error:
        raise _locked_error(folder, error.holder) from None
    with contextlib.suppress(OSError):  # on a full disk the file names no owner
        lock.write_pid()
    return lock


def _locked_error(folder: Path, owner: str) -> JournalLocked:
    if owner == str(os.getpid()):  # for example, a notebook cell that creates the producer ran twice
        return JournalLocked(
            f"The journal {folder} is already open in this process.",
            fix="Use the producer that has it, or close() that producer first.",
        )
    return JournalLocked(
        f"The journal {folder} is in use by process {owner or 'unknown'}.",
        fix="Stop that process, or set another journal_dir for this producer.",
    )

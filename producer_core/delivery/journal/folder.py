"""The folder of a journal: its lock, its sessions and its reserved sequences."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.file_lock import FileLock, FileLocked, lock_file
from producer_core._internal.home_folder import expand_user
from producer_core.delivery.journal.file_writes import replace as replace_file
from producer_core.delivery.journal.frame import JournalFrame, frame, frames, seed
from producer_core.errors import JournalDamaged, JournalError, JournalLocked
from producer_core.messages import MessageIds, SequenceSpan, new_session

_RESERVE_BLOCK = 1 << 20
"""Sequences reserved in one write, and the maximum that a crash can skip."""
_COPY_ALIGNMENT = 4096
"""The second copy of a small file's content starts in another disk sector."""

_FORMATS = {1: 0, 2: 2}
"""The formats that this version reads, with the start value of the checksums in the file `session`: earlier versions find
no valid copy there, and refuse the journal. Format 2 adds groups of records. A journal without a group has format 1."""
_FORMAT_NOTE = (
    "producer_core journal, format {}.\n"
    "This file is not damaged if your version of producer_core reads the format. Earlier versions report it as damaged and "
    "leave the journal as it is: use the version that wrote it, or a later one.\n"
)
_FORMAT_NAME = re.compile(rb"producer_core journal, format (\d+)\.")

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
        self.path = expand_user(path).absolute()
        for created in private_files.make_folder(self.path):
            private_files.sync_folder(created.parent)
        self._lock = _lock(self.path)
        try:
            self.format, self.identity = self._load_identity()
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

    def begin_session(
        self, first: int, has_records: Callable[[int, int], bool], *, has_groups: bool = False
    ) -> MessageIds:
        """Start a session and return its ids. `first` is its first sequence.

        An earlier session is kept while `has_records(start, end)` returns true for its sequences.
        """
        self.format = 2 if has_groups else 1
        known = (span._replace(end=min(span.end, first)) for span in self.identity.spans)
        earlier = tuple(span for span in known if has_records(span.start, span.end))
        session = new_session()
        self.identity = replace(self.identity, spans=(*earlier, SequenceSpan(first, _OPEN_END, session)))
        return MessageIds(session, first=first, earlier=earlier)

    def reserve(self, sequence: int) -> None:
        """Record durably that this sequence is used, before its first use, so that no later process reuses its id."""
        if sequence >= self.reserved_below:
            if not self._session_written:
                self._write_session()
            self._write_reserved(sequence + _RESERVE_BLOCK)
            self.reserved_below = sequence + _RESERVE_BLOCK

    def allow_groups(self) -> None:
        """Change to the format with groups, durably and before the first one, so that earlier versions refuse the journal."""
        if self.format < 2:
            self.format = 2
            try:
                self._write_session()
            except BaseException:
                self.format = 1
                raise

    def close(self, next_sequence: int | None = None) -> None:
        """Unlock the folder. With `next_sequence`, release the unused part of the reservation."""
        if next_sequence is not None and next_sequence != self._reserved:
            with contextlib.suppress(OSError):  # a full disk only causes skipped sequences
                self._write_reserved(next_sequence)
        self._lock.release()

    def sync(self) -> None:
        private_files.sync_folder(self.path)

    def _load_identity(self) -> tuple[int, JournalIdentity]:
        try:
            number = self._named_format()
        except FileNotFoundError:
            if any(self.path.glob("*.journal")):
                raise JournalDamaged(
                    f"The journal {self.path} has messages, but its file `session` is missing, so their ids are unknown.",
                    fix="Restore the file, or move the folder aside and keep it for analysis.",
                ) from None
            content = _IDENTITY.pack(new_session().bytes, secrets.randbits(32))
            self._write("session", content, 0)
            return 1, JournalIdentity.decode(content)
        if number not in _FORMATS:
            raise JournalError(
                f"The journal {self.path} has format {number}. This version of producer_core reads the formats 1 and 2.",
                fix="Use the version of producer_core that wrote the journal, or a later one.",
            )
        for number, start in _FORMATS.items():
            if (found := self._first_frame("session", start)) is not None:
                return number, JournalIdentity.decode(found)
        raise self._damaged("session")

    def _named_format(self) -> int:
        """Return the format that the file `session` names. Format 1 has no name."""
        found = _FORMAT_NAME.match((self.path / "session").read_bytes())
        return 1 if found is None else int(found[1])

    def _write_session(self) -> None:
        note = b"" if self.format == 1 else _FORMAT_NOTE.format(self.format).encode()
        self._write("session", self.identity.encode(), _FORMATS[self.format], note)
        self._session_written = True

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

    def _write(self, name: str, content: bytes, seed: int, note: bytes = b"") -> None:
        data = _aligned(note)
        data = _aligned(data + frame(content, seed, len(data)))
        replace_file(self.path / name, data + frame(content, seed, len(data)))

    def _read(self, name: str, seed: int) -> bytes | None:
        try:
            content = self._first_frame(name, seed)
        except FileNotFoundError:
            return None
        if content is None:
            raise self._damaged(name)
        return content

    def _first_frame(self, name: str, seed: int) -> bytes | None:
        for found in frames((self.path / name).read_bytes(), seed):
            if isinstance(found, JournalFrame):
                return found.content
        return None

    def _damaged(self, name: str) -> JournalDamaged:
        return JournalDamaged(
            f"Both copies in the journal file {self.path / name} are damaged.",
            fix="Move the folder aside and keep it for analysis. The producer creates a new folder.",
        )


def _aligned(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // _COPY_ALIGNMENT) * _COPY_ALIGNMENT, b"\0")


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

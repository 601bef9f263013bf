"""The state file of a `send`: how far it is, in a file that is whole or is not believed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from producer_core._internal import private_files
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import JournalDamaged, JournalError, JournalLocked

_TITLE = b"producer-core send 1"

Where = tuple[str, int]
"""A partition: (topic, number)."""


@dataclass(frozen=True)
class SendJob:
    """What is sent where, and how. Two commands with equal jobs are the same command."""

    topic: str
    cluster_id: str
    path: str
    delivery: str
    options: dict[str, str]
    """Those that decide what rows there are, and what they say."""
    size: int = 0
    sha256: str = ""


@dataclass
class SendState:
    """How far a job is. `settled` are rows, counted from 0, that need nothing more: acknowledged, or dead letters."""

    job: SendJob
    run: int
    """Told apart by --restart: part of the session, and so of every id."""
    settled: Ranges = field(default_factory=Ranges)
    reached: int = 0
    """No row at or above this was ever handed over."""
    offsets: dict[Where, int] = field(default_factory=dict)
    dead: int = 0
    malformed: int = 0
    doubtful: int = 0
    """Rows that were sent again although the broker may have had them."""
    rows: int | None = None
    """How many the input has; known once all of them are settled."""

    def possible(self) -> int:
        """Rows that may have been sent and are not known to be settled."""
        return self.reached - sum(end - start for start, end in self.settled.overlap(0, self.reached))


def encode(state: SendState) -> bytes:
    body = orjson.dumps(
        {
            **{name: getattr(state, name) for name in _PLAIN},
            "job": asdict(state.job),
            "settled": list(state.settled),
            "offsets": [[*where, offset] for where, offset in state.offsets.items()],
        }
    )
    return b"%s %08x %d\n%s\n" % (_TITLE, zlib.crc32(body), len(body), body)


_PLAIN = ("run", "reached", "dead", "malformed", "doubtful", "rows")


def decode(data: bytes) -> SendState:
    """ValueError for anything but what `encode` wrote."""
    head, _, rest = data.partition(b"\n")
    body = rest.removesuffix(b"\n")
    if head != b"%s %08x %d" % (_TITLE, zlib.crc32(body), len(body)) or len(rest) != len(body) + 1:
        raise ValueError("the checksum is wrong")
    found: dict[str, Any] = orjson.loads(body)
    return SendState(
        job=SendJob(**found["job"]),
        settled=Ranges((start, end) for start, end in found["settled"]),
        offsets={(topic, partition): offset for topic, partition, offset in found["offsets"]},
        **{name: found[name] for name in _PLAIN},
    )


class StateFile:
    """One file, and the lock beside it that says who sends; held until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        try:
            private_files.make_folder(path.parent)
            self._lock = _locked(path.with_suffix(".lock"))
        except OSError as error:
            raise JournalError(
                f"The state of this send cannot be kept in {path.parent}: {error.strerror or error}.",
                fix="Make the folder writable, or name another with XDG_STATE_HOME.",
            ) from error

    def read(self) -> SendState | None:
        """None when there is none; JournalDamaged when what is there is not what was written."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decode(data)
        except (ValueError, KeyError, TypeError) as error:
            raise JournalDamaged(f"The state file {self.path} is damaged: {error}.") from error

    def write(self, state: SendState) -> None:
        """All of it or nothing, also through a power failure. OSError leaves what was there."""
        self.write_bytes(encode(state))

    def write_bytes(self, data: bytes) -> None:
        """The same, of a state that was encoded before."""
        self._draft(data).replace(self.path)
        private_files.sync_folder(self.path.parent)

    def rehearse(self, data: bytes) -> None:
        """Raise OSError where a write fails now; leave the file as it is."""
        self._draft(data).unlink()

    def _draft(self, data: bytes) -> Path:
        draft = self.path.with_suffix(".new")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        return draft

    def set_aside(self) -> Path:
        """Keep a damaged one for a person."""
        aside = self.path.with_suffix(".damaged")
        self.path.replace(aside)
        return aside

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the job go; where nothing is left of it, the lock's file goes too."""
        if self._lock < 0:
            return
        if not self.path.exists():
            self.path.with_suffix(".lock").unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1


def _locked(path: Path) -> int:
    """A descriptor that holds the lock; it goes with the process, however that ends."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise JournalLocked(
                f"This file is being sent to this topic already, by process {owner}.",
                fix=f"Wait for it, or stop it (kill {owner}) and start again: it goes on where that one ended.",
            ) from error
        if _is(file, path):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
            return file
        os.close(file)  # its owner removed it just now


def _is(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False

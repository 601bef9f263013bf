"""The state file of a `send`: its position, in a file with a checksum."""

from __future__ import annotations

import contextlib
import os
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from producer_core._internal import private_files
from producer_core._internal.environment_settings import STORE, is_store_disabled
from producer_core._internal.file_lock import FileLock, FileLocked, lock_file
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import JournalDamaged, JournalError, JournalLocked

_TITLE = b"producer-core send 1"

Partition = tuple[str, int]
"""Topic and number."""


@dataclass(frozen=True)
class SendJob:
    """The input, the destination and the options of a send. Two commands with equal jobs are the same command."""

    topic: str
    cluster_id: str
    path: str
    delivery: str
    options: dict[str, str]
    """The options that determine the rows and their content."""
    size: int = 0
    sha256: str = ""


@dataclass
class SendState:
    """The position of a job. `settled` contains the rows, counted from 0, that are acknowledged or dead letters."""

    job: SendJob
    run: int
    """The run's number, which --restart changes. It is part of the session, and so of every message id."""
    settled: Ranges = field(default_factory=Ranges)
    reached: int = 0
    """No row at or above this number was ever enqueued."""
    offsets: dict[Partition, int] = field(default_factory=dict)
    dead: int = 0
    malformed: int = 0
    doubtful: int = 0
    """Rows that were sent again although a broker may already have them."""
    rows: int | None = None
    """The number of rows of a complete job, known once all of them are settled."""

    @property
    def complete(self) -> bool:
        return self.rows is not None and len(self.settled) >= self.rows

    def possible(self, limit: int | None = None) -> int:
        """Return the number of rows, of the first `limit`, that may have been sent and are not known to be settled."""
        rows = self.reached if limit is None else min(limit, self.reached)
        return rows - sum(end - start for start, end in self.settled.overlap(0, rows))


def encode(state: SendState) -> bytes:
    body = orjson.dumps(
        {
            **{name: getattr(state, name) for name in _PLAIN},
            "job": asdict(state.job),
            "settled": list(state.settled),
            "offsets": [[*partition, offset] for partition, offset in state.offsets.items()],
        }
    )
    return b"%s %08x %d\n%s\n" % (_TITLE, zlib.crc32(body), len(body), body)


_PLAIN = ("run", "reached", "dead", "malformed", "doubtful", "rows")


def decode(data: bytes) -> SendState:
    """Return the state that `encode` wrote. Raise ValueError for any other bytes."""
    head, _, rest = data.partition(b"\n")
    body = rest.removesuffix(b"\n")
    if head != b"%s %08x %d" % (_TITLE, zlib.crc32(body), len(body)) or len(rest) != len(body) + 1:
        raise ValueError("the checksum does not match")
    found: dict[str, Any] = orjson.loads(body)
    return SendState(
        job=SendJob(**found["job"]),
        settled=Ranges((start, end) for start, end in found["settled"]),
        offsets={(topic, partition): offset for topic, partition, offset in found["offsets"]},
        **{name: found[name] for name in _PLAIN},
    )


class StateFile:
    """The state file of one job, and a lock beside it that names the sending process. `close` releases the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: FileLock | None = None
        try:
            private_files.make_folder(path.parent)
            self._lock = _locked(path.with_suffix(".lock"))
        except OSError as error:
            raise JournalError(
                f"The state of this send cannot be written to {path.parent}: {error.strerror or error}.",
                fix=f"Make the folder writable, or set {_folder_setting()}.",
            ) from error

    def read(self) -> SendState | None:
        """Return the state, or None without a file. Raise JournalDamaged where the checksum does not match."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decode(data)
        except (ValueError, KeyError, TypeError) as error:
            raise JournalDamaged(f"The state file {self.path} is damaged: {error}.") from error

    def write(self, state: SendState) -> None:
        """Replace the file atomically, even through a power failure. OSError leaves the old file."""
        self.write_bytes(encode(state))

    def write_bytes(self, data: bytes) -> None:
        """Write a state that is already encoded."""
        self._draft(data).replace(self.path)
        private_files.sync_folder(self.path.parent)

    def rehearse(self, data: bytes) -> None:
        """Raise OSError where a write would fail. Leave the file unchanged."""
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
        """Rename a damaged file, so that it can be examined."""
        aside = self.path.with_suffix(".damaged")
        self.path.replace(aside)
        return aside

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock. Remove the lock file where no state file is left."""
        if self._lock is None:
            return
        if not self.path.exists():
            self.path.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.release()
        self._lock = None


def _folder_setting() -> str:
    """Return the setting that selects the folder; see `default_path`."""
    if os.environ.get(STORE) and not is_store_disabled(os.environ):
        return "PRODUCER_CORE_STORE to a path in another one"
    return "XDG_STATE_HOME to another one"


def _locked(path: Path) -> FileLock:
    """Lock the file and write this process's id to it."""
    try:
        lock = lock_file(path, blocking=False)
    except FileLocked as error:
        owner = error.holder or "unknown"
        raise JournalLocked(
            f"Process {owner} is already sending this file to this topic.",
            fix=f"Wait until it finishes, or stop it (kill {owner}) and run the command again to resume.",
        ) from error
    try:
        lock.write_pid()
    except BaseException:
        lock.release()
        raise
    return lock

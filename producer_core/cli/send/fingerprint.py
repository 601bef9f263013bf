"""The identity of an input file and of a send job, from which the message ids are derived."""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

import orjson

from producer_core.cli.send.input_file import InputError, readable
from producer_core.cli.send.state_file import SendJob

_BLOCK = 1 << 20
PREFIX = 12
"""The first bytes of a session identify the job; the last four are the run's number."""


@dataclass(frozen=True)
class Fingerprint:
    """The size and SHA-256 of a file as stored, and the inode and modification time that reveal a later write."""

    size: int
    sha256: str
    inode: int
    modified_ns: int

    def check(self, file: int, name: str) -> None:
        """Raise InputError when the file of this descriptor has changed since the fingerprint."""
        now = os.fstat(file)
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (self.inode, self.size, self.modified_ns):
            raise InputError(
                f"{name} was changed while it was being sent.",
                fix="Restore the content and run the same command to resume; changed content is refused.",
            )


def is_file(path: Path | None) -> bool:
    """Return whether the input can be read again: a regular file, not a pipe or standard input."""
    try:
        return path is not None and stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def fingerprint(path: Path, report: Callable[[int, int], None] = lambda done, total: None) -> Fingerprint:
    """Read the whole file once, at about a gigabyte per second. `report` gets the bytes read and the total."""
    with readable(str(path)), path.open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        done, sha256 = _checksum(file, None, lambda done: report(done, before.st_size))
    return Fingerprint(done, sha256, before.st_ino, before.st_mtime_ns)


def begins_with(
    path: Path, size: int, sha256: str, report: Callable[[int, int], None] = lambda done, total: None
) -> bool:
    """Return whether the file is longer than `size` and its first `size` bytes have this checksum."""
    with readable(str(path)), path.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size <= size:
            return False
        return _checksum(file, size, lambda done: report(done, size)) == (size, sha256)


def _checksum(file: RawIOBase, size: int | None, report: Callable[[int], None]) -> tuple[int, str]:
    """Return the number and the SHA-256 of the first `size` bytes, or of all bytes."""
    digest = hashlib.sha256()
    done = 0
    while block := file.read(_BLOCK if size is None else min(_BLOCK, size - done)):
        digest.update(block)
        done += len(block)
        report(done)
    return done, digest.hexdigest()


def session_of(job: SendJob, run: int) -> uuid.UUID:
    """Return the session for the message ids: a UUID version 8 (RFC 9562), a hash of the job and the run's number.

    The same content, topic and options give the same ids on any machine.
    """
    identity = [job.topic, job.sha256, job.size, job.delivery, job.options]
    raw = bytearray(hashlib.sha256(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)).digest()[:PREFIX])
    raw[6] = 0x80 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return uuid.UUID(bytes=bytes(raw) + run.to_bytes(4))


def transactional_id_of(job: SendJob) -> str:
    """Return one transactional id per content and topic, so that a new run fences every earlier one."""
    digest = hashlib.sha256(orjson.dumps([job.topic, job.sha256, job.size])).hexdigest()
    return f"producer-core-send-{digest[:24]}"


def state_path(folder: Path, job: SendJob) -> Path:
    """Return one path per cluster, topic and file path, independent of the content, so that a replaced file is detected."""
    digest = hashlib.sha256(orjson.dumps([job.cluster_id, job.topic, job.path])).hexdigest()
    return folder / "sends" / f"{digest[:32]}.state"

"""The identity of an input and of a job: what makes two runs of a command the same, and the ids of its messages."""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from producer_core.cli.send.input_file import InputError, readable
from producer_core.cli.send.state_file import SendJob

_BLOCK = 1 << 20
PREFIX = 12
"""The first bytes of a session are the job's; the other four are the run's number."""


@dataclass(frozen=True)
class Fingerprint:
    """Size and SHA-256 of a file as it lies there, and how the system tells that it was written to since."""

    size: int
    sha256: str
    inode: int
    modified_ns: int

    def check(self, file: int, name: str) -> None:
        """InputError when the file of this descriptor is not what was looked at."""
        now = os.fstat(file)
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (self.inode, self.size, self.modified_ns):
            raise InputError(
                f"{name} was changed while it was sent.",
                fix="Start again with the same command: with the same content it goes on, with another it is refused.",
            )


def is_file(path: Path | None) -> bool:
    """Whether it can be read again: a regular file, no pipe and no standard input."""
    try:
        return path is not None and stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def fingerprint(path: Path, tell: Callable[[int, int], None] = lambda done, total: None) -> Fingerprint:
    """Reads the whole file once, about a gigabyte a second; `tell` hears how much of how much."""
    digest = hashlib.sha256()
    done = 0
    with readable(str(path)), path.open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            tell(done, before.st_size)
    return Fingerprint(done, digest.hexdigest(), before.st_ino, before.st_mtime_ns)


def session_of(job: SendJob, run: int) -> uuid.UUID:
    """The same content to the same topic with the same options gives the same ids, on any machine.

    A UUID version 8 (RFC 9562): a hash of the job, then the run's number.
    """
    said = [job.topic, job.sha256, job.size, job.delivery, job.options]
    raw = bytearray(hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).digest()[:PREFIX])
    raw[6] = 0x80 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return uuid.UUID(bytes=bytes(raw) + run.to_bytes(4))


def transactional_id_of(job: SendJob) -> str:
    """One for the content and the topic, whatever the run, so that a new run fences what an earlier one left."""
    digest = hashlib.sha256(orjson.dumps([job.topic, job.sha256, job.size])).hexdigest()
    return f"producer-core-send-{digest[:24]}"


def state_path(folder: Path, job: SendJob) -> Path:
    """One for a topic of a cluster and a file, whatever is in it: so a replaced file is noticed."""
    digest = hashlib.sha256(orjson.dumps([job.cluster_id, job.topic, job.path])).hexdigest()
    return folder / "sends" / f"{digest[:32]}.state"

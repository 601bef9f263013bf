"""Let one job at a time use a folder. The kernel releases the lock when the process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from producer_core.errors import PipelineError


@dataclass(frozen=True)
class JobLock:
    handle: int

    @classmethod
    def acquire(cls, file: Path, what: str) -> JobLock:
        """Acquire the lock, or raise PipelineError when another job holds `what`."""
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
            os.close(handle)
            raise PipelineError(
                f"Another job uses {what}{f' (process {holder})' if holder else ''}.",
                fix="Wait until it ends, or name another folder.",
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return cls(handle)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.handle)

"""Track a process by its id and start time, including from another process later."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event


@dataclass(frozen=True, slots=True)
class TrackedProcess:
    """A process. `started` distinguishes it from a later process with the same id."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        _reap(self.pid)
        return bool(self.started) and _started(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children; do nothing when it has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, timeout: float) -> bool:
        """Wait, and return whether the process ended in time."""
        deadline, pause = time.monotonic() + timeout, Event()
        while self.alive:
            if time.monotonic() > deadline:
                return False
            pause.wait(0.02)
        return True

    def end(self, timeout: float = 15.0) -> None:
        """Send SIGTERM (and SIGCONT, in case it is stopped), then SIGKILL after `timeout`."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not self.wait(timeout):
            self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait(10)


def spawn(
    command: Sequence[str], *, output: Path, environment: Mapping[str, str] | None = None
) -> TrackedProcess:
    """Start a program as the leader of its own session, so that a Ctrl-C here does not reach it."""
    with output.open("ab") as file:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(environment) if environment is not None else None,
            start_new_session=True,
        )
    child.returncode = 0  # detach Popen: the process is tracked by its id from here on
    return TrackedProcess(child.pid, _started(child.pid))


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _started(pid: int) -> str:
    """Return the start time as the system writes it; empty when the process does not exist."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return "" if fields[0] == "Z" else fields[19]  # fields 3 (state) and 22 (starttime) of proc(5)
    shown = subprocess.run(
        ["ps", "-p", str(pid), "-o", "lstart="], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()

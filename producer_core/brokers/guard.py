"""A small process that ends a cluster's brokers when the process that started them dies, however it dies.

It reads lines `+PID STARTED` and `-PID STARTED`. When the pipe closes, which the kernel also does after a SIGKILL, it
kills the listed processes and deletes the folder from its arguments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from producer_core.brokers.processes import TrackedProcess

_ROOT = Path(__file__).parents[2]  # the import path of producer_core


class BrokerGuard:
    def __init__(self, folder: Path | None = None) -> None:
        """Start the guard. `folder`, if given, is deleted at the end."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *([str(folder)] if folder else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])},
            start_new_session=True,
        )

    def watch(self, process: TrackedProcess) -> None:
        self._write(f"+{process.pid} {process.started}\n")

    def forget(self, process: TrackedProcess) -> None:
        self._write(f"-{process.pid} {process.started}\n")

    def close(self) -> None:
        """End the watched processes, and return when that is done."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def main() -> None:
    watched: set[TrackedProcess] = set()
    for line in sys.stdin:
        pid, _, started = line[1:].strip().partition(" ")
        change = watched.add if line[0] == "+" else watched.discard
        change(TrackedProcess(int(pid), started))
    for process in watched:
        process.kill()
    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""Run a command that ends when its parent does: `python -m producer_core.simulate.parent_watchdog PARENT COMMAND...`.

The kernel kills it even after a `kill -9` of the parent. The request is made in the child process before it becomes
the command, because code between fork and exec of a process with threads may hang.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def with_watchdog(command: Sequence[str]) -> list[str]:
    """Return the command to start instead. Start it from the main thread: the kernel watches the starting thread."""
    return [sys.executable, "-m", "producer_core.simulate.parent_watchdog", str(os.getpid()), *command]


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the request
            return
    os.execvp(command[0], command)  # noqa: S606  an argument list, no shell


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

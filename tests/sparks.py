"""Spark's processes, as /proc shows them: which belong to a driver, and which of them are Python workers."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def tree(pid):
    """The process and everything below it: id to command."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(stat[1])
    found, waiting = {}, [pid]
    while waiting:
        one = waiting.pop()
        found[one] = command(one)
        waiting += [child for child, parent in parents.items() if parent == one and child not in found]
    return found


def command(pid):
    with contextlib.suppress(OSError):
        return (
            (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    return ""


def workers(pid):
    """Spark's Python workers below a driver: the daemon's children, which run tasks."""
    daemons = [one for one, text in tree(pid).items() if "pyspark.daemon" in text]
    return [one for one in daemons if any(one != other and one in tree(other) for other in daemons)]


def jvms(pid):
    return [one for one, text in tree(pid).items() if "java" in text.split(" ")[0] and one != pid]


def kill(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)

"""Export or import dead letters in a process that kills itself at a given point, and print its peak memory.

python -m tests.processes.transfer export|import STORE FILE [WHEN]

WHEN is a number of dead letters, or a step: audited, manifest (published before the file), written (a slice of an import
before its commit).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from producer_core.dlq import DeadLetterFilter, files, upsert
from producer_core.dlq.files import importer
from producer_core.dlq.files.atomic_file import AtomicFile
from producer_core.store import Store

ME = {"who": "child", "origin": "test"}


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(when):
    """Patch the step at which the process kills itself; for a number, return a progress callback that does."""
    if when.isdigit():
        return lambda done, _total: die() if done >= int(when) else None
    if when == "audited":
        AtomicFile.publish = die
    if when == "manifest":
        whole = AtomicFile.publish
        AtomicFile.publish = lambda self: whole(self) if self.target.name.endswith(".json") else die()
    if when == "written":
        importer.import_dead_letters = lambda *arguments, **options: (
            upsert.import_dead_letters(*arguments, **options),
            die(),
        )
    return None


def main(act, store, file, when=""):
    progress = arrange(when)
    if act == "export":
        made = files.export(
            Store.open(store), DeadLetterFilter(), Path(file), **ME, overwrite=True, progress=progress
        )
        print(made.rows)
    else:
        done = files.import_(Store.open(store), Path(file), **ME, progress=progress)
        print(done.new, done.known)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])

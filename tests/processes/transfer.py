"""A process that exports or imports dead letters, kills itself where it is told to, and says how much memory it took.

python -m tests.processes.transfer export|import STORE FILE [WHEN]

WHEN is a number of dead letters, or a moment: audited, manifest (published, the file not yet), written (a slice of an
import, before its commit).
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
    """Where the process dies, as a progress callable."""
    if when.isdigit():
        return lambda done, _total: die() if done >= int(when) else None
    if when == "audited":
        AtomicFile.publish = die
    if when == "manifest":
        whole = AtomicFile.publish
        AtomicFile.publish = lambda self: whole(self) if self.target.name.endswith(".json") else die()
    if when == "written":
        importer.take_in = lambda *arguments, **options: (
            upsert.take_in(*arguments, **options),
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

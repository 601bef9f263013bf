"""`pipeline reprocess` that dies at named points: `python -m tests.reprocess_driver POINT,POINT -- WORDS OF THE COMMAND`.

- `worker`: each wave's first task dies in its first attempt, with all its records in an open transaction
- `committed`: the driver dies when its second wave is committed, before anything of it is written down
- `sealing`: the driver dies when its first wave is committed and its slices are sealed anew
"""

from __future__ import annotations

import os
import signal
import sys


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(errand):
    """In place of `sending.runner`; Spark carries it to its workers by value, for this is the main module."""

    def run(batches):
        import os

        from pyspark import TaskContext

        from producer_core.exactly_once.client import Client
        from producer_core.pipeline.reprocess.sending import send

        task = TaskContext.get()
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            Client._commit = lambda self, deadline: os.kill(os.getpid(), 9)
        yield from send(errand, batches)

    return run


def arm(points):
    from producer_core.pipeline.reprocess import spreading, waves

    find_out, left = spreading.Spreading._find_out, [2 if "committed" in points else 1]

    def last(self, told):
        left[0] -= 1
        if left[0] <= 0:
            if "sealing" in points:
                self._seal(range(self._course.life.slicing.count))
            die()
        return find_out(self, told)

    if "worker" in points:
        waves.runner = deadly
    if "committed" in points or "sealing" in points:
        spreading.Spreading._find_out = last


if __name__ == "__main__":
    named, _, *words = sys.argv[1:]
    arm(named.split(","))

    from producer_core.cli import main

    main(words)

"""A driver of a reprocess that dies: `python -m tests.reprocess_driver SERVERS STORE WAVE [CANARY]`.

It has no Spark: a thread of its own sends each full wave, as Spark's tasks do. When its second wave is committed, and nothing
of that is written down, it kills itself.
"""

from __future__ import annotations

import os
import signal
import sys

from producer_core.pipeline.reprocess import batches as reprocess_batches
from producer_core.pipeline.reprocess import reprocess, spark_replay
from producer_core.pipeline.reprocess.slice_task import send
from producer_core.store import Store


def dying_worker(errand):
    """In place of `sending.runner`: the first task of each wave dies in its first attempt, in an open transaction."""

    def run(batches):
        from pyspark import TaskContext

        from producer_core.delivery.exactly_once.transactional_client import TransactionalClient
        from producer_core.pipeline.reprocess.slice_task import send

        task, commit = TaskContext.get(), TransactionalClient._commit
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            TransactionalClient._commit = lambda self, deadline: os.kill(os.getpid(), signal.SIGKILL)
        try:
            yield from send(errand, batches)
        finally:
            TransactionalClient._commit = commit

    return run


class Here(reprocess_batches.SparkBatch):
    def _sent(self):
        return [
            row for batch in send(self._errand, self._dead_letters.to_batches()) for row in batch.to_pylist()
        ]


class NoSpark:
    class sparkContext:
        applicationId = "dies"
        defaultParallelism = 2


def main(servers, store, wave, canary=0):
    find_out, waves_left = spark_replay.SparkReplay._find_out, [2]

    def last(self, told):
        waves_left[0] -= 1
        if not waves_left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return find_out(self, told)

    spark_replay.SparkBatch, spark_replay.SparkReplay._find_out = Here, last
    reprocess(NoSpark, Store.open(store), servers, who="bob", wave=int(wave), slices=3, canary=int(canary))


if __name__ == "__main__":
    main(*sys.argv[1:])

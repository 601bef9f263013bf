"""A driver of a reprocess that dies: `python -m tests.processes.reprocess SERVERS STORE WAVE [CANARY]`.

It has no Spark: a thread sends each full batch, as Spark's tasks do. When its second batch is committed, and the
store does not know it yet, the driver kills itself.
"""

from __future__ import annotations

import os
import signal
import sys

from producer_core.pipeline.reprocess import batches as reprocess_batches
from producer_core.pipeline.reprocess import reprocess, spark_replay
from producer_core.pipeline.reprocess.slice_task import send
from producer_core.store import Store


def dying_worker(task):
    """Replace `slice_task.task_function`: the first task of each batch dies in its first attempt, in an open
    transaction."""

    def run(batches):
        from pyspark import TaskContext

        from producer_core.delivery.exactly_once.transactional_client import TransactionalClient
        from producer_core.pipeline.reprocess.slice_task import send

        context, commit = TaskContext.get(), TransactionalClient._commit
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            TransactionalClient._commit = lambda self, deadline: os.kill(os.getpid(), signal.SIGKILL)
        try:
            yield from send(task, batches)
        finally:
            TransactionalClient._commit = commit

    return run


class ThreadBatch(reprocess_batches.SparkBatch):
    def _send(self):
        return [
            row for batch in send(self._task, self._dead_letters.to_batches()) for row in batch.to_pylist()
        ]


class NoSpark:
    class sparkContext:
        applicationId = "dies"
        defaultParallelism = 2


def main(servers, store, wave, canary=0):
    settle, batches_left = spark_replay.SparkReplay._settle, [2]

    def settle_or_die(self, reported):
        batches_left[0] -= 1
        if not batches_left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return settle(self, reported)

    spark_replay.SparkBatch, spark_replay.SparkReplay._settle = ThreadBatch, settle_or_die
    reprocess(NoSpark, Store.open(store), servers, who="bob", wave=int(wave), slices=3, canary=int(canary))


if __name__ == "__main__":
    main(*sys.argv[1:])

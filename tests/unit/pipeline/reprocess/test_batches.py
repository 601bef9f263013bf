"""A batch in Spark: its table of slices, and the reason of a lost one."""

from __future__ import annotations

from collections import Counter

import pytest

from producer_core.pipeline.reprocess import Slicing, batches, spark_replay
from producer_core.pipeline.reprocess.packing import unpacked
from producer_core.replay.guard import CanaryRule
from tests.fixtures.replays import replay_record
from tests.fixtures.reprocess import of_session


def test_large_slices_go_to_different_tasks():
    """Spark cuts the rows of a small table into even consecutive parts."""
    dead_letters = [of_session(number, session) for session in range(30) for number in range(1 + session)]
    rows = [
        (row["slice"], len(unpacked(row["dead_letters"])))
        for row in batches.slice_table(dead_letters, Slicing(6), 3).to_pylist()
    ]
    counts = Counter(Slicing(6).of(dead_letter) for dead_letter in dead_letters)

    assert dict(rows) == counts
    assert {slice_ for slice_, _ in rows[:: len(rows) // 3]} == {
        slice_ for slice_, _ in counts.most_common(3)
    }


def test_a_batch_that_spark_lost_has_its_reason_in_one_sentence():
    groups = []

    class Context:
        def setJobGroup(self, group, text):
            groups.append(group)

    class Broken:
        sparkContext = Context()

        def createDataFrame(self, *_):
            raise RuntimeError("SparkContext was shut down")

    task = batches.SliceTask("op", {}, 7, {}, spark_replay.ProgressTopic("p", 1, {0: 0}), 10, CanaryRule(), 1)
    batch = batches.SparkBatch(Broken(), batches.slice_table([replay_record(1)], Slicing(1)), task)
    batch.start()
    assert batch.done.wait(10)

    assert groups == ["reprocess-op-7"]
    with pytest.raises(batches.BatchLost, match="Spark's Java process exited"):
        batch.outcomes()

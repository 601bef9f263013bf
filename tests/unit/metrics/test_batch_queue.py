"""The queue of batches for the store: when it writes its log, and that the log stays small."""

from __future__ import annotations

import errno

import pytest

from producer_core._internal.log_queue import QUEUE
from producer_core.errors import StoreLocked
from producer_core.metrics.batch import Batch, StatisticsRow
from producer_core.metrics.batch_queue import BatchQueue
from producer_core.metrics.statistics_log import StatisticsLog, recover
from tests.fixtures.recording import FakeStore, row


def batch(sequence, acknowledged=1):
    statistics = (StatisticsRow(sequence, "c", "p", "orders", 0, acknowledged, *[0] * 7, 0.0),)
    return Batch("p", sequence, statistics=statistics if acknowledged else (), producer=row())


@pytest.fixture
def log(tmp_path):
    return StatisticsLog(tmp_path / "store.duckdb")


def left(tmp_path):
    """Return the sequences that an ended process leaves, and the sum of their acknowledgements."""
    batches = []
    recover(tmp_path / "store.duckdb", lambda *found: batches.extend(found) or len(found))
    return [one.sequence for one in batches], sum(r.acknowledged for one in batches for r in one.statistics)


def test_heartbeats_are_written_with_the_next_batch_that_counts_a_message(log, tmp_path):
    queue = BatchQueue(log)
    for sequence in range(3):
        queue.add(batch(sequence, acknowledged=0))
        queue.keep()
    assert list(tmp_path.iterdir()) == []

    queue.add(batch(3))
    queue.keep()
    queue.close()
    assert left(tmp_path) == ([0, 1, 2, 3], 1)


def test_the_log_of_a_long_outage_stays_small_and_complete(log, tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.metrics.batch_queue._MAX_BATCHES", 5)
    monkeypatch.setattr("producer_core.metrics.batch_queue._MAX_LOG_BYTES", 4_000)
    queue = BatchQueue(log)
    sizes = []
    for sequence in range(500):
        queue.add(batch(sequence))
        queue.keep()
        queue.limit()
        sizes.append(log.size)
    queue.close()

    assert max(sizes) < 10_000
    assert left(tmp_path)[1] == 500


def test_a_disk_that_does_not_take_the_log_is_reported_once_and_tried_again(
    log, tmp_path, monkeypatch, caplog
):
    queue = BatchQueue(log)
    monkeypatch.setattr("producer_core.metrics.batch_queue._LOG_RETRY_S", 0.0)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("producer_core.metrics.statistics_log._write", full)
        for sequence in range(3):
            queue.add(batch(sequence))
            queue.keep()
        assert queue.in_memory_only and queue._unlogged == []
    queue.add(batch(3))
    queue.keep()
    assert not queue.in_memory_only
    queue.close()
    assert left(tmp_path) == ([0, 1, 2, 3], 4)
    QUEUE.drain(10)
    (line,) = caplog.messages
    assert line.startswith("statistics are in memory only") and "No space left on device" in line


def test_batches_that_the_store_did_not_take_stay_in_the_log(log, tmp_path):
    queue = BatchQueue(log)
    queue.add(batch(0))
    queue.keep()
    with pytest.raises(StoreLocked):
        queue.flush(FakeStore(trouble=StoreLocked("in use")))
    queue.close()
    assert left(tmp_path) == ([0], 1)


def test_the_heartbeats_of_an_idle_producer_take_bounded_memory_while_the_store_is_away(log, monkeypatch):
    monkeypatch.setattr("producer_core.metrics.batch_queue._MAX_BATCHES", 5)
    queue = BatchQueue(log)
    for sequence in range(100):
        queue.add(batch(sequence, acknowledged=0))
        queue.keep()
        queue.limit()

    assert len(queue._unlogged) <= 6
    queue.close()

"""The recorder: what it writes of the statistics, how often, and what it keeps while the store is not available."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from producer_core._internal import time_budget
from producer_core.errors import StoreLocked
from producer_core.events import Acknowledged, AttemptFailed, Notice
from producer_core.metrics.ack_ledger import AckLedger, entries
from producer_core.metrics.statistics_log import StatisticsLog, recover
from tests.fixtures.recording import FakeStore, RecordingRig, acknowledged
from tests.fixtures.replays import dead_letter
from tests.support import eventually


@pytest.fixture
def rig():
    rig = RecordingRig()
    rig.recorder.start()
    yield rig
    rig.recorder.stop()


def test_each_message_is_counted_in_exactly_one_batch(rig):
    recorder, store, metrics = rig.recorder, rig.store, rig.metrics
    for _ in range(3):
        metrics.acknowledged(acknowledged(100))
        recorder.flush_soon(60)

    rows = [item for batch in store.batches for item in batch.statistics]
    buckets = [item for batch in store.batches for item in batch.latencies]
    assert (sum(item.acknowledged for item in rows), sum(item.count for item in buckets)) == (300, 300)
    assert [batch.sequence for batch in store.batches] == list(range(len(store.batches)))


def test_batches_are_combined_while_the_store_has_no_readers_and_state_changes_written_at_once():
    rig = RecordingRig()
    recorder, store, metrics = rig.recorder, rig.store, rig.metrics

    def second():
        metrics.acknowledged(acknowledged(1))
        recorder._tick(write=False)
        return store.writes, len(store.batches)

    assert second() == (1, 1)  # the first heartbeat is news
    assert [second(), second()] == [(1, 1), (1, 1)]
    recorder.notice(Notice("connected", "info", "Connected.", 1.0))
    assert second() == (2, 4)
    metrics.attempt_failed(
        AttemptFailed("m", "orders", "_MSG_TIMED_OUT", "timed_out", "t", 1, None, True, 1.0)
    )
    assert [second(), second()] == [(3, 5), (3, 5)]
    store.is_read = True
    assert [second(), second()] == [(4, 7), (5, 8)]
    assert sum(item.acknowledged for batch in store.batches for item in batch.statistics) == 8


def test_batches_are_written_every_four_seconds_while_the_store_is_not_read():
    """Regression: it was five, because the fourth tick came just before four seconds had passed since the last write."""
    assert _batches_written(seconds=9, messages=1) == [1, 1, 1, 1, 5, 5, 5, 5, 9]


def test_an_idle_producer_writes_its_heartbeats_every_eight_seconds():
    assert _batches_written(seconds=17, messages=0) == [*[1] * 8, *[9] * 8, 17]


def test_the_heartbeats_of_eight_seconds_are_one_batch_with_all_statistics_of_the_client():
    rig = RecordingRig()
    for second in range(9):
        rig.recorder.client_statistics({"msg_cnt": 0, "time": second})
        rig.recorder._tick(write=False)

    first, rest = rig.store.batches
    assert (first.begins, first.sequence, first.resolution) == (0, 0, 1)
    assert (rest.begins, rest.sequence, rest.resolution) == (1, 8, 60)
    assert sum(row.samples for row in rest.client_statistics) == 8


def test_the_heartbeats_of_a_store_that_is_read_keep_their_seconds():
    rig = RecordingRig()
    rig.store.is_read = True
    for _ in range(3):
        rig.recorder._tick(write=False)

    assert [(batch.begins, batch.sequence, batch.resolution) for batch in rig.store.batches] == [
        (0, 0, 1), (1, 1, 1), (2, 2, 1),
    ]  # fmt: skip


def _batches_written(*, seconds, messages):
    """Return the number of batches that the store covers after each second with this many messages."""
    rig = RecordingRig()
    written = []
    for _ in range(seconds):
        if messages:
            rig.metrics.acknowledged(acknowledged(messages))
        rig.recorder._tick(write=False)
        written.append(sum(batch.sequence - batch.begins + 1 for batch in rig.store.batches))
    return written


def test_flush_soon_during_a_write_waits_for_the_next_write(rig):
    """Regression: the second call returned when the earlier write was done."""
    recorder, store, metrics = rig.recorder, rig.store, rig.metrics
    busy, proceed = threading.Event(), threading.Event()
    append = store.append

    def slow_append(*batches):
        busy.set()
        proceed.wait(10)
        return append(*batches)

    store.append = slow_append
    first = threading.Thread(target=recorder.flush_soon, args=(10,))
    first.start()
    assert busy.wait(10)
    metrics.acknowledged(acknowledged(7))
    found = []

    def flush():
        recorder.flush_soon(10)
        found.append(sum(item.acknowledged for batch in store.batches for item in batch.statistics))

    second = threading.Thread(target=flush)
    second.start()
    eventually(lambda: recorder._wake.is_set())
    proceed.set()
    first.join(10)
    second.join(10)

    assert found == [7]


def test_a_dead_letter_is_written_promptly(rig):
    rig.recorder.died(dead_letter(1))
    assert rig.writer.wait_written(60)
    assert len(rig.store.dead_letters) == 1


@pytest.mark.slow
def test_counts_of_an_outage_are_written_later_with_one_notice_each_for_its_start_and_end(rig):
    rig.store.trouble = StoreLocked()
    rig.metrics.acknowledged(acknowledged(7))
    rig.recorder.flush_soon(60)
    rig.recorder.flush_soon(60)
    assert rig.store.batches == []

    rig.store.trouble = None
    rig.recorder.flush_soon(60)
    rig.recorder.flush_soon(60)

    notices = Counter(notice.kind for notice in rig.written("notices"))
    assert sum(item.acknowledged for item in rig.written("statistics")) == 7
    assert (notices["store_unavailable"], notices["store_available"]) == (1, 1)


@pytest.mark.parametrize("windows", [300, 3])
def test_the_oldest_ledger_rows_beyond_the_limit_are_dropped_and_counted(monkeypatch, windows):
    """With room for 3 windows the older ones are one batch, of which only the oldest rows are dropped."""
    monkeypatch.setattr("producer_core.metrics.batch_queue._MAX_LEDGER", 160)
    monkeypatch.setattr("producer_core.metrics.batch_queue._MAX_BATCHES", windows)
    rig = RecordingRig(ledger=AckLedger(b"s" * 16), store=FakeStore(trouble=StoreLocked("busy")))
    recorder, store = rig.recorder, rig.store
    for second in range(35):
        recorder.acknowledged(
            [Acknowledged("orders", 0, n, 0.0, 10, 1, n) for n in range(second * 10, second * 10 + 10)]
        )
        recorder._tick(write=True)
    store.trouble = None
    recorder._tick(write=True)

    kept = [seq for batch in store.batches for rows in batch.ledger for seq, _ in entries(rows)]
    assert len(kept) >= 130 and recorder.ledger_lost == 350 - len(kept)
    assert kept == list(range(recorder.ledger_lost, 350))  # the newest


def test_stop_does_not_wait_for_the_next_tick(rig):
    recorder, store, metrics = rig.recorder, rig.store, rig.metrics
    metrics.acknowledged(acknowledged(1))
    began = time.monotonic()
    recorder.stop()
    assert store.batches
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("timeout", [0.0, 1.0, 10.0])
def test_a_stop_gives_telemetry_only_time_that_is_left(rig, timeout):
    """Regression: it took up to 6 s after the timeout while the brokers were slow."""
    given = []
    rig.recorder._telemetry = SimpleNamespace(publish=lambda batch: None, close=given.append)
    rig.recorder.stop(timeout)
    (seconds,) = given
    assert seconds <= max(0.2, timeout / 2)


class BusyStore(FakeStore):
    """Another process holds the store; `append` waits as the real one does."""

    def __init__(self):
        super().__init__()
        self.waiting = threading.Event()

    def append(self, *batches):
        self.waiting.set()
        while not time_budget.over():
            threading.Event().wait(0.01)
        raise StoreLocked("in use")


def in_log(folder):
    """Return the acknowledgements that an ended process would leave beside the store."""
    batches = []
    recover(folder / "store.duckdb", lambda *found: batches.extend(found) or len(found))
    return sum(row.acknowledged for batch in batches for row in batch.statistics)


def test_statistics_are_collected_and_kept_on_disk_while_the_recorder_waits_for_the_store(tmp_path):
    store = BusyStore()
    log = StatisticsLog(tmp_path / "store.duckdb")
    rig = RecordingRig(store=store, log=log)
    rig.metrics.acknowledged(acknowledged(3))
    rig.recorder.start()
    assert store.waiting.wait(30)

    before = log.size
    rig.metrics.acknowledged(acknowledged(4))
    eventually(lambda: log.size > before)
    rig.metrics.acknowledged(acknowledged(5))
    rig.recorder.stop(timeout=1.0)

    assert in_log(tmp_path) == 12


def test_the_log_is_empty_once_the_store_has_the_batches(tmp_path):
    log = StatisticsLog(tmp_path / "store.duckdb")
    rig = RecordingRig(log=log)
    rig.recorder.start()
    rig.metrics.acknowledged(acknowledged(3))
    rig.recorder.stop()

    assert sum(item.acknowledged for item in rig.written("statistics")) == 3
    assert list(tmp_path.iterdir()) == []

"""The recorder: what it writes, and its behaviour while the store is not available."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from producer_core.errors import StoreFull, StoreLocked
from producer_core.events import Acknowledged, AttemptFailed, Notice
from producer_core.metrics.ack_ledger import AckLedger, entries
from producer_core.metrics.counters import Metrics
from producer_core.metrics.recorder import Recorder, RecorderDestination
from producer_core.metrics.stats_window import StatsWindow
from tests.fixtures.recording import acknowledged, row
from tests.fixtures.replays import dead_letter
from tests.support import eventually


@dataclass
class FakeStore:
    """Stores batches and dead letters, or raises `trouble` if it is set."""

    trouble: Exception | None = None
    batches: list = field(default_factory=list)
    dead_letters: list = field(default_factory=list)
    is_read: bool = False
    writes: int = 0

    def append(self, *batches):
        self._check()
        self.batches.extend(batches)
        self.writes += 1
        return len(batches)

    def recently_read(self):
        return self.is_read

    def add(self, dead_letters):
        self._check()
        self.dead_letters.extend(item.message_id for item in dead_letters)

    def rollup(self, now):
        return 0

    def prune(self, now):
        return 0

    def _check(self):
        if self.trouble is not None:
            raise self.trouble


@dataclass
class FakeSpill:
    trouble: Exception | None = None
    dead_letters: list = field(default_factory=list)

    def append(self, dead_letters):
        if self.trouble is not None:
            raise self.trouble
        self.dead_letters.extend(dead_letters)

    @contextlib.contextmanager
    def taking(self):
        yield list(self.dead_letters)
        self.dead_letters.clear()


@pytest.fixture
def parts():
    store, spill, metrics = FakeStore(), FakeSpill(), Metrics()
    recorder = Recorder(
        lambda: RecorderDestination(store, store),
        spill,
        StatsWindow(metrics, describe=row, pending=Counter),
        buffer_limit=3,
    )
    recorder.start()
    yield recorder, store, spill, metrics
    recorder.stop()


def test_stop_spills_dead_letters_before_it_waits_for_the_store():
    """Another process holds the store for as long as the recorder waits."""
    store, spill, spilled, failed = FakeStore(), FakeSpill(), [], dead_letter(1)

    def raise_locked(dead_letters):
        spilled.append(list(spill.dead_letters))
        raise StoreLocked("held")

    store.add = raise_locked
    recorder = Recorder(
        lambda: RecorderDestination(store, store),
        spill,
        StatsWindow(Metrics(), describe=row, pending=Counter),
    )
    recorder.died(failed)
    recorder._end()  # the last step of its thread

    assert spill.dead_letters == [failed]
    assert spilled and all(seen == [failed] for seen in spilled)
    assert recorder.unwritten == 0


def test_each_message_is_counted_in_exactly_one_batch(parts):
    recorder, store, _, metrics = parts
    for _ in range(3):
        metrics.acknowledged(acknowledged(100))
        recorder.flush_soon(60)

    rows = [item for batch in store.batches for item in batch.statistics]
    buckets = [item for batch in store.batches for item in batch.latencies]
    assert (sum(item.acknowledged for item in rows), sum(item.count for item in buckets)) == (300, 300)
    assert [batch.sequence for batch in store.batches] == list(range(len(store.batches)))


def test_batches_are_written_together_while_the_store_is_not_read_and_news_at_once():
    store, metrics = FakeStore(), Metrics()
    recorder = Recorder(
        lambda: RecorderDestination(store, store),
        FakeSpill(),
        StatsWindow(metrics, describe=row, pending=Counter),
    )

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
    store = FakeStore()
    recorder = Recorder(
        lambda: RecorderDestination(store, store),
        FakeSpill(),
        StatsWindow(Metrics(), describe=row, pending=Counter),
    )
    written = []
    for _ in range(9):
        recorder._tick(write=False)
        written.append(len(store.batches))

    assert written == [1, 1, 1, 1, 5, 5, 5, 5, 9]


def test_flush_soon_during_a_write_waits_for_the_next_write(parts):
    """Regression: the second call returned when the earlier write was done."""
    recorder, store, _, metrics = parts
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


def test_a_dead_letter_is_written_promptly(parts):
    recorder, store, _, _ = parts
    recorder.died(dead_letter(1))
    assert recorder.wait_written(60)
    assert len(store.dead_letters) == 1


@pytest.mark.slow
def test_dead_letters_are_spilled_while_the_store_is_locked_and_written_later_with_one_notice(parts):
    recorder, store, spill, metrics = parts
    store.trouble = StoreLocked()
    metrics.acknowledged(acknowledged(7))
    recorder.died(dead_letter(1))
    eventually(lambda: spill.dead_letters)
    recorder.flush_soon(60)
    recorder.flush_soon(60)
    assert recorder.trouble is not None and not recorder.full

    store.trouble = None
    recorder.flush_soon(60)
    eventually(lambda: store.dead_letters and not spill.dead_letters)

    recorder.flush_soon(60)
    rows = [item for batch in store.batches for item in batch.statistics]
    notices = [notice.kind for batch in store.batches for notice in batch.notices]
    assert sum(item.acknowledged for item in rows) == 7
    assert notices.count("store_unavailable") == 1
    assert notices.count("store_available") == 1


@pytest.mark.slow
def test_wait_stored_waits_for_dead_letters_that_are_only_in_the_spill_file(parts):
    recorder, store, spill, _ = parts
    store.trouble = StoreLocked()
    recorder.died(dead_letter(1))
    eventually(lambda: spill.dead_letters)
    assert not recorder.wait_stored(0.01)

    store.trouble = None
    assert recorder.wait_stored(60)
    assert len(store.dead_letters) == 1


def test_a_recorder_without_room_for_dead_letters_is_full_and_loses_none(parts):
    recorder, store, spill, _ = parts
    store.trouble, spill.trouble = StoreLocked(), StoreFull()
    for number in range(4):
        recorder.died(dead_letter(number))
    eventually(lambda: recorder.full)

    store.trouble = spill.trouble = None
    recorder.flush_soon(60)
    eventually(lambda: len(store.dead_letters) == 4)
    assert not recorder.full


@pytest.mark.parametrize("windows", [300, 3])
def test_the_oldest_ledger_rows_beyond_the_limit_are_dropped_and_counted(monkeypatch, windows):
    """With room for 3 windows the older ones are one batch, of which only the oldest rows are dropped."""
    monkeypatch.setattr("producer_core.metrics.recorder._MAX_LEDGER", 160)
    monkeypatch.setattr("producer_core.metrics.recorder._MAX_BATCHES", windows)
    store, ledger = FakeStore(trouble=StoreLocked("busy")), AckLedger(b"s" * 16)
    recorder = Recorder(
        lambda: RecorderDestination(store, store), FakeSpill(), StatsWindow(Metrics(), describe=row, pending=Counter, ledger=ledger),
        keep_ledger=True,
    )  # fmt: skip
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


def test_stop_does_not_wait_for_the_next_tick(parts):
    recorder, store, _, metrics = parts
    metrics.acknowledged(acknowledged(1))
    began = time.monotonic()
    recorder.stop()
    assert store.batches
    assert time.monotonic() - began < 5

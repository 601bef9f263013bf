"""The recorder: what it writes, and what it does while the store cannot be had."""

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
from producer_core.metrics.batch import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow
from producer_core.metrics.counters import Metrics
from producer_core.metrics.recorder import Recorder, RecorderDestination, sum_by_minute
from producer_core.metrics.stats_window import StatsWindow
from tests.support import eventually
from tests.unit.replaying import dead_letter


@dataclass
class FakeStore:
    """Takes batches and dead letters, unless it is told to be in trouble."""

    trouble: Exception | None = None
    batches: list = field(default_factory=list)
    dead_letters: list = field(default_factory=list)
    looked: bool = False
    writes: int = 0

    def append(self, *batches):
        self._check()
        self.batches.extend(batches)
        self.writes += 1
        return len(batches)

    def looked_at(self):
        return self.looked

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


def row():
    return ProducerRow(
        "p", "c", "client", "h", 1, "0", 0.0, 0.0, None, True, None, 0, 0, 0, 0, 0, None, True, "x", "{}"
    )


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


def acknowledged(count, topic="orders"):
    return [Acknowledged(topic, 0, number, 0.005, 10, 1, number) for number in range(count)]


def test_a_close_keeps_dead_letters_before_it_waits_for_the_store():
    """The store is held for as long as the recorder waits for it."""
    store, spill, kept, died = FakeStore(), FakeSpill(), [], dead_letter(1)

    def held(dead_letters):
        kept.append(list(spill.dead_letters))
        raise StoreLocked("held")

    store.add = held
    recorder = Recorder(
        lambda: RecorderDestination(store, store),
        spill,
        StatsWindow(Metrics(), describe=row, pending=Counter),
    )
    recorder.died(died)
    recorder._end()  # what its thread does last

    assert spill.dead_letters == [died]
    assert kept and all(seen == [died] for seen in kept)
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


def test_seconds_that_nobody_looks_at_are_written_together_and_those_that_tell_something_at_once():
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
    store.looked = True
    assert [second(), second()] == [(4, 7), (5, 8)]
    assert sum(item.acknowledged for batch in store.batches for item in batch.statistics) == 8


def test_what_nobody_looks_at_is_written_four_seconds_at_a_time():
    """It was five: the fourth second came a moment before four seconds had passed since the last write."""
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


def test_who_hurries_while_something_is_written_waits_for_what_he_wants(parts):
    """He was told that it was done when what came before it was."""
    recorder, store, _, metrics = parts
    busy, go_on = threading.Event(), threading.Event()
    append = store.append

    def slow(*batches):
        busy.set()
        go_on.wait(10)
        return append(*batches)

    store.append = slow
    first = threading.Thread(target=recorder.flush_soon, args=(10,))
    first.start()
    assert busy.wait(10)
    metrics.acknowledged(acknowledged(7))
    found = []

    def hurry():
        recorder.flush_soon(10)
        found.append(sum(item.acknowledged for batch in store.batches for item in batch.statistics))

    second = threading.Thread(target=hurry)
    second.start()
    eventually(lambda: recorder._wake.is_set())
    go_on.set()
    first.join(10)
    second.join(10)

    assert found == [7]


def test_a_dead_letter_is_written_within_a_moment(parts):
    recorder, store, _, _ = parts
    recorder.died(dead_letter(1))
    assert recorder.wait_written(60)
    assert len(store.dead_letters) == 1


def test_while_the_store_is_locked_letters_spill_and_come_back_and_it_is_told_once(parts):
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


def test_a_listing_waits_for_dead_letters_that_are_only_in_the_spill_file(parts):
    recorder, store, spill, _ = parts
    store.trouble = StoreLocked()
    recorder.died(dead_letter(1))
    eventually(lambda: spill.dead_letters)
    assert not recorder.wait_stored(0.01)

    store.trouble = None
    assert recorder.wait_stored(60)
    assert len(store.dead_letters) == 1


def test_with_no_place_left_the_recorder_says_full_and_loses_nothing(parts):
    recorder, store, spill, _ = parts
    store.trouble, spill.trouble = StoreLocked(), StoreFull()
    for number in range(4):
        recorder.died(dead_letter(number))
    eventually(lambda: recorder.full)

    store.trouble = spill.trouble = None
    recorder.flush_soon(60)
    eventually(lambda: len(store.dead_letters) == 4)
    assert not recorder.full


def test_two_batches_added_up_keep_every_count():
    where = (1_700_000_001, "c", "p")
    one = Batch(
        "p", 1, (StatisticsRow(*where, "t", 1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5),), (LatencyRow(*where, "t", 3, 2),),
        (ErrorRow(*where, "t", "X", "local", 1),),
    )  # fmt: skip
    both = sum_by_minute(one, Batch("p", 2, one.statistics, one.latencies, one.errors))

    assert both.sequence == 2
    assert both.statistics[0][4:] == (2, 4, 6, 8, 10, 12, 14, 16, 18, 1.0)
    assert (both.latencies[0].count, both.errors[0].count) == (4, 2)


@pytest.mark.parametrize("windows", [300, 3])
def test_beyond_the_bound_the_oldest_rows_of_the_ledger_go_and_are_counted(monkeypatch, windows):
    """With 3 windows that may wait the older ones are one batch: the oldest rows of it go, not all."""
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

    kept = [seq for batch in store.batches for told in batch.ledger for seq, _ in entries(told)]
    assert len(kept) >= 130 and recorder.ledger_lost == 350 - len(kept)
    assert kept == list(range(recorder.ledger_lost, 350))  # the newest


def test_what_was_acknowledged_while_it_was_taken_names_its_cluster():
    known = []

    class Heard(AckLedger):
        def take(self):
            known.append("c")  # the first acknowledgement of a producer's life
            return super().take()

    heard = Heard(b"s" * 16)
    tally = StatsWindow(
        Metrics(), ledger=heard, pending=Counter, number=iter(range(9)).__next__, clock=time.time,
        describe=lambda: row()._replace(cluster_id="".join(known)),
    )  # fmt: skip
    heard.acknowledged(acknowledged(3))
    (batch,) = tally.take(())
    assert batch.acknowledgements == 3 and batch.cluster_id == "c"


def test_stopping_does_not_wait_for_the_next_second(parts):
    recorder, store, _, metrics = parts
    metrics.acknowledged(acknowledged(1))
    began = time.monotonic()
    recorder.stop()
    assert store.batches
    assert time.monotonic() - began < 5

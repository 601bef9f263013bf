"""Threads that send at the level `power` share a sync; each message reaches the client once, and only after it."""

from __future__ import annotations

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.journal import Journal
from producer_core.delivery.journal.journal_feeder import JournalFeeder
from producer_core.errors import JournalFull
from tests.fixtures.journal import kept, segment_of
from tests.support import eventually

THREADS = 16


class Target:
    """A client that takes messages while it has room."""

    transport = SimpleNamespace(settles_journal=False)

    def __init__(self):
        self.pending = {}
        self.offered = []
        self.has_room = lambda: True

    def offer(self, delivery):
        if not self.has_room():
            return False
        self.pending[delivery.id] = delivery
        self.offered.append(delivery)
        return True

    def renew(self, deliveries, waits):
        pass


class Disk:
    """Replaces `os.fdatasync`: a sync ends when the test opens the disk."""

    def __init__(self, monkeypatch):
        self.open = threading.Event()
        self.syncs = 0
        self.syncing = threading.Event()
        self.error = None
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, file):
        self.syncs += 1
        self.syncing.set()
        assert self.open.wait(20)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def journal(tmp_path, disk):
    with Journal.open(tmp_path / "journal", level="power") as opened:
        yield opened
        disk.error = None
        disk.open.set()


@pytest.fixture
def target():
    return Target()


@pytest.fixture
def feeder(journal, target):
    made = JournalFeeder(journal, target)
    yield made
    made.stop()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


def a_delivery(journal, seq, key=None):
    return Delivery(journal.ids.of(seq), seq, "orders", key, b"%d" % seq)


def sequences(target):
    return [delivery.seq for delivery in target.offered]


def take_all(feeder, journal, threads):
    """Take a message in each thread, and return when all are written and none is synced."""
    futures = [threads.submit(feeder.take, a_delivery(journal, seq)) for seq in range(THREADS)]
    eventually(lambda: journal.unsettled() == THREADS)
    return futures


def test_threads_share_a_sync_and_offer_their_messages_after_it(feeder, journal, target, disk, threads):
    taken = take_all(feeder, journal, threads)
    assert target.offered == []
    assert not any(one.done() for one in taken)

    disk.open.set()

    for one in taken:
        one.result(20)
    assert sorted(sequences(target)) == list(range(THREADS))
    assert disk.syncs <= 2  # the first may have begun before the other messages were written


def test_batches_of_several_threads_share_a_sync(feeder, journal, target, disk, threads):
    accepted = [[] for _ in range(4)]
    batches = [[a_delivery(journal, 10 * number + index) for index in range(10)] for number in range(4)]
    futures = [
        threads.submit(feeder.take_many, batch, taken) for batch, taken in zip(batches, accepted, strict=True)
    ]
    eventually(lambda: journal.unsettled() == 40)
    disk.open.set()

    for one in futures:
        one.result(20)
    assert accepted == batches
    assert sorted(sequences(target)) == list(range(40))
    assert disk.syncs <= 2


def test_a_failed_sync_rejects_the_messages_of_all_threads(feeder, journal, target, disk, threads, tmp_path):
    taken = take_all(feeder, journal, threads)
    failed_segment = segment_of(tmp_path / "journal")
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.open.set()

    for one in taken:
        with pytest.raises(JournalFull) as failure:
            one.result(20)
        assert failure.value.withdrawn
    assert target.offered == []
    assert kept(journal) == []

    disk.error = None
    feeder.take(a_delivery(journal, THREADS))
    assert sequences(target) == [THREADS]
    assert segment_of(tmp_path / "journal") != failed_segment


def test_a_full_disk_rejects_a_message_without_a_sync(feeder, journal, target, disk, monkeypatch):
    disk.open.set()
    feeder.take(a_delivery(journal, 0))
    syncs, size = disk.syncs, journal.size()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(JournalFull) as failure:
            feeder.take(a_delivery(journal, 1))

    assert not failure.value.withdrawn  # it may be taken again
    assert (disk.syncs, journal.size()) == (syncs, size)
    feeder.take(a_delivery(journal, 1))
    assert sequences(target) == kept(journal) == [0, 1]


def test_the_feeder_offers_no_message_before_its_sync(feeder, journal, target, disk, threads):
    disk.open.set()
    target.has_room = lambda: False
    feeder.take(a_delivery(journal, 0))
    disk.open.clear()
    disk.syncing.clear()
    later = threads.submit(feeder.take, a_delivery(journal, 1))
    assert disk.syncing.wait(20)

    target.has_room = lambda: True
    feeder.start()
    eventually(lambda: not feeder._behind)
    assert sequences(target) == [0]

    disk.open.set()
    later.result(20)
    assert sequences(target) == [0, 1]


def test_the_feeder_takes_over_a_synced_message_with_its_callbacks(
    feeder, journal, target, disk, threads, monkeypatch
):
    disk.open.set()
    target.has_room = lambda: False
    feeder.take(a_delivery(journal, 0))
    target.has_room = lambda: True
    synced, resume = threading.Event(), threading.Event()
    wait_synced = journal.wait_synced

    def wait_long(ticket, seqs):
        wait_synced(ticket, seqs)
        synced.set()
        assert resume.wait(20)

    monkeypatch.setattr(journal, "wait_synced", wait_long)
    later = a_delivery(journal, 1)
    later.callbacks = Callbacks(on_delivery=lambda report: None)
    taken = threads.submit(feeder.take, later)
    assert synced.wait(20)

    feeder.start()
    eventually(lambda: sequences(target) == [0, 1])
    resume.set()
    taken.result(20)

    assert sequences(target) == [0, 1]
    assert target.offered[1].callbacks is later.callbacks


@pytest.mark.parametrize("seed", range(3))
def test_messages_of_each_thread_reach_the_client_once_and_in_order(
    feeder, journal, target, disk, threads, seed
):
    rng, numbers, lock = random.Random(seed), iter(range(10_000)), threading.Lock()
    disk.open.set()
    target.has_room = lambda: rng.random() < 0.9
    feeder.start()

    def send(key):
        for _ in range(30):
            with lock:
                seq = next(numbers)
            if rng.random() < 0.2:
                with lock:
                    following = next(numbers)
                feeder.take_many([a_delivery(journal, one, key) for one in (seq, following)], [])
            else:
                feeder.take(a_delivery(journal, seq, key))

    for one in [threads.submit(send, b"%d" % number) for number in range(8)]:
        one.result(60)
    last = next(numbers)
    eventually(lambda: len(target.offered) >= last)

    assert sorted(sequences(target)) == list(range(last))
    for key in {delivery.key for delivery in target.offered}:
        own = [delivery.seq for delivery in target.offered if delivery.key == key]
        assert own == sorted(own)

"""Each message reaches the client once, in order, and only when it is accepted; threads share a sync."""

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
from producer_core.errors import Fenced, JournalFull
from tests.fixtures.journal import kept, segment_of
from tests.support import eventually

THREADS = 16


class Target:
    """A client that takes messages while it has room."""

    transport = SimpleNamespace(settles_journal=False)
    resume_span = None

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


def leave_to_feeder(feeder, target, delivery):
    target.has_room = lambda: False
    feeder.take(delivery)
    target.has_room = lambda: True


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


def full(*_):
    raise OSError(errno.ENOSPC, "full")


def test_a_full_disk_rejects_a_message_without_a_sync(feeder, journal, target, disk, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.journal.segment._PREALLOCATE_BYTES", (0,))
    disk.open.set()
    feeder.take(a_delivery(journal, 0))
    syncs, size = disk.syncs, journal.size()
    large = Delivery(journal.ids.of(1), 1, "orders", None, bytes(100_000))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        patch.setattr(os, "pwrite", full)
        with pytest.raises(JournalFull) as failure:
            feeder.take(large)

    assert not failure.value.withdrawn  # it may be taken again
    assert (disk.syncs, journal.size()) == (syncs, size)
    feeder.take(large)
    assert sequences(target) == kept(journal) == [0, 1]


def test_a_disk_that_is_full_during_a_sync_rejects_the_messages_of_its_group(
    feeder, journal, target, disk, threads, monkeypatch
):
    """On a file system that copies blocks, a write to allocated space may need other space."""
    first = threads.submit(feeder.take, a_delivery(journal, 0))
    assert disk.syncing.wait(20)
    others = [threads.submit(feeder.take, a_delivery(journal, seq)) for seq in range(1, THREADS)]
    eventually(lambda: journal.unsettled() == THREADS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        disk.open.set()
        first.result(20)
        for one in others:
            with pytest.raises(JournalFull) as failure:
                one.result(20)
            assert failure.value.withdrawn

    assert kept(journal) == sequences(target) == [0]
    feeder.take(a_delivery(journal, THREADS))
    assert kept(journal) == sequences(target) == [0, THREADS]


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


class Pause:
    """Pauses the threads that call `wait_synced`, or `append_many`, after the records can be read."""

    def __init__(self, monkeypatch, journal, name):
        self.written, self.resume, self.error = threading.Event(), threading.Event(), None
        self._call = getattr(journal, name)
        monkeypatch.setattr(journal, name, self)

    def __call__(self, *args):
        self._call(*args)
        self.written.set()
        assert self.resume.wait(20)
        if self.error is not None:
            raise self.error


class ReadOrder:
    """Stops the feeder after it read the first message, and notes when it feeds messages or waits for a thread."""

    def __init__(self, monkeypatch, feeder):
        self.first_read, self.go_on, self.decided = threading.Event(), threading.Event(), threading.Event()
        self._read, self._feed_records = feeder.journal.read, feeder._feed_records
        monkeypatch.setattr(feeder.journal, "read", self.read)
        monkeypatch.setattr(feeder, "_feed_records", self.feed_records)
        monkeypatch.setattr(feeder._stopping, "wait", self.wait)

    def read(self, after=-1):
        for record in self._read(after):
            yield record
            self.first_read.set()
            assert self.go_on.wait(20)

    def feed_records(self, records):
        self.decided.set()
        self._feed_records(records)

    def wait(self, seconds):
        self.decided.set()
        return False


def start_behind(monkeypatch, feeder, target, delivery):
    """Start a feeder that has this message to feed, and return the order of its reads once it has read."""
    order = ReadOrder(monkeypatch, feeder)
    target.has_room = lambda: False
    feeder.take(delivery)
    target.has_room = lambda: True
    feeder.start()
    assert order.first_read.wait(20)
    return order


@pytest.fixture(params=["process", "power"])
def level(request):
    return request.param


def pause_of(level, monkeypatch, journal):
    """Pause a batch when the feeder can read it and its thread has not offered it."""
    return Pause(monkeypatch, journal, "wait_synced" if level == "power" else "append_many")


def test_the_feeder_sends_no_message_of_a_batch_before_an_earlier_one(
    tmp_path, target, threads, monkeypatch, level
):
    """Regression: of a batch with the messages 3 and 8, a feeder that read from message 5 on sent 8 first."""
    with Journal.open(tmp_path / "journal", level=level) as journal:
        feeder = JournalFeeder(journal, target)
        order = start_behind(monkeypatch, feeder, target, a_delivery(journal, 5))
        pause = pause_of(level, monkeypatch, journal)
        taken = threads.submit(feeder.take_many, [a_delivery(journal, seq) for seq in (3, 8)], [])
        assert pause.written.wait(20)

        order.go_on.set()
        assert order.decided.wait(20)
        pause.resume.set()
        taken.result(20)
        eventually(lambda: len(target.offered) == 3)
        feeder.stop()

    assert sequences(target) == [5, 3, 8]


def test_a_batch_that_the_journal_refuses_leaves_the_backlog_complete(
    feeder, journal, target, disk, monkeypatch
):
    disk.open.set()
    leave_to_feeder(feeder, target, a_delivery(journal, 5))

    def refuse(deliveries):
        raise JournalFull("full")

    monkeypatch.setattr(journal, "append_many", refuse)
    with pytest.raises(JournalFull):
        feeder.take_many([a_delivery(journal, 3)], [])
    feeder.start()
    eventually(lambda: not feeder._behind)

    assert sequences(target) == [5]
    assert not feeder._accepting


def test_an_interrupted_message_is_neither_sent_nor_kept(feeder, journal, target, disk, threads, monkeypatch):
    """Regression: the feeder had taken the message over and sent it, although send_message raised."""
    disk.open.set()
    order = start_behind(monkeypatch, feeder, target, a_delivery(journal, 0))
    pause = Pause(monkeypatch, journal, "wait_synced")
    pause.error = KeyboardInterrupt()
    taken = threads.submit(feeder.take, a_delivery(journal, 1))
    assert pause.written.wait(20)

    order.go_on.set()
    assert order.decided.wait(20)
    pause.resume.set()
    with pytest.raises(KeyboardInterrupt):
        taken.result(20)
    eventually(lambda: not feeder._behind)

    assert sequences(target) == [0]
    assert kept(journal) == [0]
    assert not feeder._accepting


def test_the_feeder_leaves_a_message_with_its_callbacks_to_the_thread_that_accepts_it(
    feeder, journal, target, disk, threads, monkeypatch
):
    disk.open.set()
    order = start_behind(monkeypatch, feeder, target, a_delivery(journal, 0))
    pause = Pause(monkeypatch, journal, "wait_synced")
    later = a_delivery(journal, 1)
    later.callbacks = Callbacks(on_delivery=lambda report: None)
    taken = threads.submit(feeder.take, later)
    assert pause.written.wait(20)

    order.go_on.set()
    assert order.decided.wait(20)
    pause.resume.set()
    taken.result(20)
    eventually(lambda: len(target.offered) == 2)

    assert sequences(target) == [0, 1]
    assert target.offered[1].callbacks is later.callbacks


class LastPass(dict):
    """Replaces `_accepting`: the feeder runs its last pass when a thread has left its messages, before it ends its entry."""

    def __init__(self, feeder, target):
        self._feeder, self._target = feeder, target

    def pop(self, lowest, *default):
        if lowest in self:
            self._target.has_room = lambda: True
            passing = threading.Thread(target=self._run)
            passing.start()
            passing.join(0.2)  # it waits while the thread holds the gate
        return super().pop(lowest, *default)

    def _run(self):
        with self._feeder._gate:
            self._feeder._behind = not self._feeder._last_pass()


def test_a_message_that_is_left_to_the_feeder_during_its_last_pass_is_sent(feeder, journal, target, disk):
    """Regression: the last pass skipped it, and the feeder stopped without it."""
    disk.open.set()
    target.has_room = lambda: False
    feeder.take(a_delivery(journal, 0))
    feeder._accepting = LastPass(feeder, target)

    feeder.take(a_delivery(journal, 1))
    feeder.start()

    eventually(lambda: sequences(target) == [0, 1])


def test_an_interrupted_batch_leaves_its_accepted_messages_to_the_feeder(
    feeder, journal, target, disk, monkeypatch
):
    disk.open.set()
    target.has_room = lambda: False
    feeder.take(a_delivery(journal, 0))
    feeder._accepting, leave, taken = LastPass(feeder, target), feeder._leave_to_feeder, []

    def interrupted(delivery):
        if delivery.seq == 2:
            raise KeyboardInterrupt
        leave(delivery)

    monkeypatch.setattr(feeder, "_leave_to_feeder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        feeder.take_many([a_delivery(journal, seq) for seq in (1, 2)], taken)
    feeder.start()

    assert [one.seq for one in taken] == [1]
    eventually(lambda: sequences(target) == [0, 1])
    assert kept(journal) == [0, 1]


def accept_slowly(feeder, journal, threads, monkeypatch):
    """Start to accept message 1 while the feeder has message 0. Return the paused thread's future and its pause."""
    pause = Pause(monkeypatch, journal, "wait_synced")
    taken = threads.submit(feeder.take, a_delivery(journal, 1))
    assert pause.written.wait(20)
    return taken, pause


def test_no_claim_is_requested_from_a_message_that_is_being_accepted(
    feeder, journal, target, disk, threads, monkeypatch
):
    """Only the feeder passes a claim on, and it may never have that message."""
    disk.open.set()
    target.has_room = lambda: False
    feeder.take(a_delivery(journal, 0))
    taken, pause = accept_slowly(feeder, journal, threads, monkeypatch)

    feeder.claim_requested(journal.ids.of(1), a_delivery(journal, 0))

    assert not feeder.holds(1)
    assert not feeder._claim_awaited_by
    pause.resume.set()
    taken.result(20)
    assert feeder.holds(1)


def test_a_message_that_waits_for_its_sync_is_not_accepted_when_the_producer_is_fenced(
    feeder, journal, target, disk, threads, monkeypatch
):
    disk.open.set()
    taken, pause = accept_slowly(feeder, journal, threads, monkeypatch)

    feeder._fenced = Fenced("another process has taken over")
    pause.resume.set()

    with pytest.raises(Fenced):
        taken.result(20)
    assert target.offered == kept(journal) == []


def test_a_stopped_feeder_does_not_wait_for_a_message_that_is_being_accepted(
    feeder, journal, target, disk, threads, monkeypatch
):
    disk.open.set()
    target.has_room = lambda: False
    feeder.take(a_delivery(journal, 0))
    pause = Pause(monkeypatch, journal, "wait_synced")
    taken = threads.submit(feeder.take, a_delivery(journal, 1))
    assert pause.written.wait(20)
    target.has_room = lambda: True
    feeder.start()

    feeder.stop()

    assert not feeder._thread.is_alive()
    pause.resume.set()
    taken.result(20)
    assert kept(journal) == [0, 1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("failures", [0, 0.05])
def test_accepted_messages_of_each_thread_reach_the_client_once_and_in_order(
    tmp_path, monkeypatch, target, threads, level, seed, failures
):
    """Threads send single messages and batches, whose sequences alternate with those of others; syncs fail."""
    rng, numbers, lock, sync = random.Random(seed), iter(range(10_000)), threading.Lock(), os.fdatasync
    accepted = {}

    def fail_sometimes(file):
        if rng.random() < failures:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    def sequence():
        with lock:
            return next(numbers)

    def send(name):
        mine = accepted[name] = []
        for _ in range(30):
            count = rng.choice((1, 1, 1, 2, 5))
            batch = [a_delivery(journal, sequence(), name) for _ in range(count)]
            try:
                feeder.take(batch[0]) if count == 1 else feeder.take_many(batch, [])
            except JournalFull:
                continue
            mine += [one.seq for one in batch]

    monkeypatch.setattr(os, "fdatasync", fail_sometimes)
    with Journal.open(tmp_path / "journal", level=level, segment_bytes=4_000) as journal:
        feeder = JournalFeeder(journal, target)
        target.has_room = lambda: rng.random() < 0.9
        feeder.start()
        for one in [threads.submit(send, b"%d" % number) for number in range(8)]:
            one.result(60)
        total = sum(map(len, accepted.values()))
        eventually(lambda: len(target.offered) >= total)
        feeder.stop()
        assert sorted(kept(journal)) == sorted(sequences(target))
        assert not feeder._accepting
        monkeypatch.setattr(os, "fdatasync", sync)

    for name, mine in accepted.items():
        assert [delivery.seq for delivery in target.offered if delivery.key == name] == mine

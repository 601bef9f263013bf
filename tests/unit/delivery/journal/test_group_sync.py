"""One sync serves all threads that wait for it, and a failed one confirms none of their writes."""

from __future__ import annotations

import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from producer_core.delivery.journal.group_sync import GroupSync, _Waiter
from tests.support import eventually


class SlowSync:
    """A sync that ends when the test releases it, with the error that the test sets."""

    def __init__(self):
        self.size = 0
        self.lock = threading.Lock()
        self.group = GroupSync(self._run, lambda: self.size)
        self.started = threading.Semaphore(0)
        self.release = threading.Semaphore(0)
        self.count = 0
        self.error = None

    def _run(self):
        self.count += 1
        self.started.release()
        assert self.release.acquire(timeout=20)
        if self.error is not None:
            raise self.error

    def write(self):
        """Write ten bytes and wait until they are synced."""
        with self.lock:
            self.size += 10
            end = self.size
        self.group.wait(end)


@pytest.fixture
def sync():
    return SlowSync()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(20) as pool:
        yield pool


def waiting(sync, count):
    """Wait until this many threads sleep until the running sync has ended."""
    eventually(lambda: len(sync.group._later) == count)


def test_writes_during_a_sync_share_the_next_one(sync, threads):
    first = threads.submit(sync.write)
    assert sync.started.acquire(timeout=20)
    others = [threads.submit(sync.write) for _ in range(15)]
    waiting(sync, 15)

    sync.release.release()
    first.result(20)
    assert sync.started.acquire(timeout=20)
    assert not any(other.done() for other in others)
    sync.release.release()

    for other in others:
        other.result(20)
    assert sync.count == 2


def test_a_failed_sync_fails_every_waiting_write_and_is_not_repeated(sync, threads):
    sync.release.release()
    sync.write()
    assert sync.started.acquire(timeout=20)
    first = threads.submit(sync.write)
    assert sync.started.acquire(timeout=20)
    others = [threads.submit(sync.write) for _ in range(15)]
    waiting(sync, 15)

    sync.error = OSError(5, "Input/output error")
    sync.release.release()
    for failed in (first, *others):
        with pytest.raises(OSError):
            failed.result(20)
    assert sync.count == 2

    sync.error = None
    with pytest.raises(OSError):
        sync.write()
    assert sync.count == 2
    sync.group.wait(10)  # the write before the failure


def test_the_next_sync_starts_at_once_when_a_write_arrives_just_before_a_sync(sync, threads):
    """Regression: that write was synced already, so its thread notified no other, and they waited for a second."""
    sizes = iter([10, 20])
    sync.group._size = lambda: next(sizes, 30)
    first = threads.submit(sync.group.wait, 10)
    assert sync.started.acquire(timeout=20)
    others = []
    for count, end in enumerate((20, 30), 1):
        others.append(threads.submit(sync.group.wait, end))
        waiting(sync, count)

    sync.release.release()
    assert sync.started.acquire(timeout=0.5)

    sync.release.release()
    sync.release.release()
    for one in (first, *others):
        one.result(20)


def test_a_signal_handler_of_the_syncing_thread_syncs_itself():
    """Regression: close() in a signal handler waited for the sync that the signal had interrupted."""
    syncs, size = [], 10

    def sync_file():
        nonlocal size
        syncs.append(size)
        if len(syncs) == 1:
            size = 20
            group.wait(20)
            assert group.synced == 20

    group = GroupSync(sync_file, lambda: size)
    caller = threading.Thread(target=group.wait, args=(10,), daemon=True)
    caller.start()
    caller.join(20)

    assert not caller.is_alive()
    assert syncs == [10, 20]
    assert group.synced == 20


def test_a_failure_in_a_signal_handler_is_not_undone_by_the_interrupted_sync():
    """The kernel reports a failure once: the sync that the signal interrupted then proves nothing."""
    syncs = []

    def sync_file():
        syncs.append(None)
        if len(syncs) == 1:
            with pytest.raises(OSError):
                group.wait(10)
        else:
            raise OSError(5, "Input/output error")

    group = GroupSync(sync_file, lambda: 10)
    with pytest.raises(OSError):
        group.wait(10)

    assert (group.failed, group.synced, len(syncs)) == (True, 0, 2)


def test_no_thread_waits_forever_when_an_interrupt_prevents_the_notification(sync, threads, monkeypatch):
    first = threads.submit(sync.write)
    assert sync.started.acquire(timeout=20)
    others = [threads.submit(sync.write) for _ in range(5)]
    waiting(sync, 5)
    with monkeypatch.context() as patch:
        patch.setattr(sync.group, "_notify", interrupted)
        sync.release.release()
        with pytest.raises(KeyboardInterrupt):
            first.result(20)

    sync.release.release()
    for other in others:
        other.result(20)


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_waiting_thread_that_is_interrupted_passes_the_notification_on(sync, threads):
    """Otherwise the other threads would wait until their next check."""
    first = threads.submit(sync.write)
    assert sync.started.acquire(timeout=20)
    others = [threads.submit(sync.write) for _ in range(3)]
    waiting(sync, 3)
    chosen = sync.group._later[0]
    with sync.group._lock:
        sync.group._later[0] = gone = _Waiter()
    sync.release.release()
    first.result(20)
    assert not sync.started.acquire(timeout=0.05)  # the thread that should sync next was interrupted

    sync.group._stop_waiting(gone)
    assert sync.started.acquire(timeout=0.5)
    chosen.notify()
    sync.release.release()
    for other in others:
        other.result(20)


def test_an_interrupted_thread_of_a_group_notifies_the_next_one(sync, threads):
    """Each thread of a group notifies the next one. Otherwise the others would wait until their next check."""
    first = threads.submit(sync.write)
    assert sync.started.acquire(timeout=20)
    others = [threads.submit(sync.write) for _ in range(5)]
    waiting(sync, 5)
    sync.release.release()
    assert sync.started.acquire(timeout=20)
    (gone, following), others_left = (_Waiter(), _Waiter()), sync.group._included
    with sync.group._lock:
        sync.group._included = [gone, following, *others_left]
    sync.release.release()
    first.result(20)
    assert gone.wait()

    sync.group._stop_waiting(gone)

    assert following.wait()
    following.pass_on()
    for other in others:
        other.result(0.5)
    assert sync.count == 2


def test_a_thread_that_stops_waiting_is_not_notified():
    group = GroupSync(lambda: None, lambda: 0)
    for waiting_threads in (group._included, group._later):
        waiting_threads.append(one := _Waiter())
        group._stop_waiting(one)
        assert not waiting_threads


def test_an_interrupt_of_a_waiting_thread_is_raised_as_it_is(sync, threads):
    """Regression: it was raised as RuntimeError when it occurred inside a Condition."""
    first = threads.submit(sync.write)
    assert sync.started.acquire(timeout=20)
    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        for _ in range(300):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.001))
                while True:
                    sync.group._wait_or_lead(sync.size + 1)
    finally:
        signal.signal(signal.SIGALRM, before)
    sync.release.release()
    first.result(20)
    assert sync.group._later == sync.group._included == []


def test_another_thread_continues_when_the_syncing_one_is_interrupted(sync, threads):
    sync.error = KeyboardInterrupt()
    first = threads.submit(sync.write)
    assert sync.started.acquire(timeout=20)
    others = [threads.submit(sync.write) for _ in range(5)]
    waiting(sync, 5)

    sync.release.release()
    with pytest.raises(KeyboardInterrupt):
        first.result(20)
    assert sync.started.acquire(timeout=20)
    sync.error = None
    sync.release.release()

    for other in others:
        other.result(20)
    assert sync.count == 2


class UnreliableDisk:
    """A file whose syncs fail, are interrupted, or are interrupted by a signal handler that syncs, at random.

    `durable` is what a power failure leaves. A failed sync drops the pages that were not durable, and a later one
    succeeds without them.
    """

    def __init__(self, rng):
        self.rng = rng
        self.lock = threading.Lock()
        self.size = self.durable = 0
        self.dropped = False
        self.running = None  # the thread whose sync runs
        self.group = GroupSync(self.sync, lambda: self.size)

    def write(self):
        with self.lock:
            self.size += 10
            return self.size

    def sync(self):
        nested, outer = self.running == threading.get_ident(), self.running
        assert nested or outer is None, "two threads sync at the same time"
        self.running = threading.get_ident()
        try:
            self._sync(nested)
        finally:
            self.running = outer

    def _sync(self, nested):
        target, chance = self.size, self.rng.random()
        threading.Event().wait(self.rng.choice((0, 0, 0.0005)))
        if chance < 0.1 and not nested:
            end = self.write()
            self.group.wait(end)
            assert end <= self.durable
        elif chance < 0.2:
            raise KeyboardInterrupt
        elif chance < 0.23:
            self.dropped = True
            raise OSError(5, "Input/output error")
        if not self.dropped:
            self.durable = max(self.durable, target)


@pytest.mark.parametrize("seed", range(20))
def test_only_durable_writes_are_confirmed_and_no_thread_waits_forever(seed):
    rng = random.Random(seed)
    disks, confirmed, failed, wrong = [UnreliableDisk(rng)], [], [], []

    def send():
        for _ in range(40):
            disk = disks[-1]
            end = disk.write()
            try:
                disk.group.wait(end)
            except OSError:
                failed.append(end)
                if disk is disks[-1]:
                    disks.append(UnreliableDisk(rng))
            except KeyboardInterrupt:
                pass
            except AssertionError as error:
                wrong.append(error)
            else:
                confirmed.append(end)
                if end > disk.durable:
                    wrong.append(end)

    senders = [threading.Thread(target=send, daemon=True) for _ in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)

    assert not any(sender.is_alive() for sender in senders)
    assert not wrong
    assert len(confirmed) > 100

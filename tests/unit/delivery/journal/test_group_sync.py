"""One sync serves all threads that wait for it, and a failed one confirms none of their writes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from producer_core.delivery.journal.group_sync import GroupSync
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
    eventually(lambda: len(sync.group._later._waiters) == count)


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

"""A thread that sends at full speed yields to the poll thread; other threads do not wait."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from producer_core.delivery.gil_handoff import GilHandoff
from producer_core.testing import FakeClock
from tests.support import eventually


@pytest.fixture
def reports():
    return []


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def cpu():
    return FakeClock()


@pytest.fixture
def handoff(reports, clock, cpu):
    """Return a handoff after 1,024 messages."""
    handoff = GilHandoff(reports, lambda: 5, clock=clock, cpu=cpu)
    handoff.yield_to_poller()
    return handoff


class NoRequests(SimpleQueue):
    def put(self, item):
        pytest.fail("a sender waited")


@pytest.fixture
def no_wait(handoff):
    handoff._requests = NoRequests()


class Poller:
    """Runs a poll thread whose polls start and end when the test allows."""

    def __init__(self, handoff):
        self.timeouts, self.proceed, self.ended = [], threading.Semaphore(0), threading.Event()
        self.polling = threading.Event()
        self._handoff = handoff
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self.ended.is_set():
            self.timeouts.append(self._handoff.poll_timeout(0.1))
            self.polling.set()
            self.proceed.acquire()

    def end(self):
        self.ended.set()
        self.proceed.release(1000)
        self._thread.join()


@pytest.fixture
def poller(handoff):
    poller = Poller(handoff)
    yield poller
    poller.end()


def yield_in_thread(handoff):
    thread = threading.Thread(target=handoff.yield_to_poller, daemon=True)
    thread.start()
    return thread


def test_without_busy_senders_the_poll_thread_waits_in_the_client(handoff):
    assert [handoff.poll_timeout(0.1), handoff.poll_timeout(0.1)] == [0.1, 0.1]


def test_a_busy_sender_does_not_wait_for_a_client_without_reports(handoff, poller, no_wait):
    assert poller.polling.wait(10)

    handoff.yield_to_poller()
    poller.proceed.release()

    assert eventually(lambda: poller.timeouts[:2] == [0.1, 0])


@pytest.mark.slow
def test_a_busy_sender_waits_until_the_poll_thread_has_worked(handoff, poller, reports, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.gil_handoff._MAX_YIELD", 30)
    assert poller.polling.wait(10)
    reports.append("a report")
    sender = yield_in_thread(handoff)
    sender.join(0.2)
    assert sender.is_alive()  # the poll thread is still collecting reports

    poller.proceed.release(2)  # the end of that poll, and the poll for the sender
    sender.join(10)

    assert not sender.is_alive()


def test_a_blocked_poll_thread_delays_a_sender_briefly_and_only_once(handoff, poller, reports):
    assert poller.polling.wait(10)
    reports.append("a callback that never returns")

    sender = yield_in_thread(handoff)
    sender.join(10)

    assert not sender.is_alive()
    handoff._requests = NoRequests()
    handoff.yield_to_poller()


def test_a_callback_that_sends_does_not_wait_for_its_own_thread(handoff, reports, no_wait):
    handoff.poll_timeout(0.1)  # makes this the poll thread
    reports.append("a report")

    handoff.yield_to_poller()


def test_a_sender_of_occasional_bursts_does_not_yield(handoff, clock, reports, no_wait):
    reports.append("a report")
    for _ in range(3):
        clock.advance(1)
        handoff.yield_to_poller()

    assert [handoff.poll_timeout(0.1), handoff.poll_timeout(0.1)] == [0.1, 0.1]


@pytest.mark.parametrize(("spent", "timeout"), [(0.02, 0.1), (0.045, 0)])
def test_a_sender_that_pauses_between_messages_is_not_busy(handoff, clock, cpu, spent, timeout):
    clock.advance(0.05)
    cpu.advance(spent)
    handoff.yield_to_poller()

    assert handoff.poll_timeout(0.1) == timeout


def test_flush_soon_ends_the_pause_of_the_poll_thread(reports, clock, cpu):
    always_more = iter(range(1_000_000)).__next__  # messages are sent all the time
    handoff = GilHandoff(reports, always_more, clock=clock, cpu=cpu)
    handoff.yield_to_poller()
    handoff.yield_to_poller()
    handoff.flush_soon()

    assert handoff.poll_timeout(0.1) == 0


def test_repeated_calls_of_flush_soon_leave_a_single_request(handoff):
    handoff.yield_to_poller()
    for _ in range(1000):
        handoff.flush_soon()

    assert handoff._requests.qsize() == 1
    assert [handoff.poll_timeout(0.1), handoff.poll_timeout(0.1)] == [0, 0.1]


def test_the_poll_thread_waits_in_the_client_again_after_a_busy_phase(handoff):
    handoff.yield_to_poller()

    assert [handoff.poll_timeout(0.1), handoff.poll_timeout(0.1)] == [0, 0.1]


def test_the_end_of_the_poll_thread_releases_waiting_senders(handoff, poller, reports, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.gil_handoff._MAX_YIELD", 30)
    assert poller.polling.wait(10)
    reports.append("a report")
    sender = yield_in_thread(handoff)
    assert eventually(lambda: not handoff._requests.empty())

    handoff.end()
    sender.join(10)

    assert not sender.is_alive()


def test_an_interrupted_sender_does_not_block_the_poll_thread(handoff, reports, monkeypatch):
    """An interrupted Event would keep its lock, and the next thread that sets it would wait forever."""
    lock = InterruptedLock()
    monkeypatch.setattr("producer_core.delivery.gil_handoff.threading", InterruptingThreading(lock))
    reports.append("a report")
    with pytest.raises(KeyboardInterrupt):
        handoff.yield_to_poller()

    assert [handoff.poll_timeout(0.1), handoff.poll_timeout(0.1), handoff.poll_timeout(0.1)] == [0, 0, 0.1]


class InterruptedLock:
    """Raises KeyboardInterrupt while a thread waits for it."""

    def acquire(self, timeout=-1):
        if timeout >= 0:
            raise KeyboardInterrupt

    def release(self):
        pass


class InterruptingThreading:
    def __init__(self, lock):
        self.Lock = lambda: lock
        self.get_ident = threading.get_ident

"""Who sends much stands aside while the poll thread works; nobody else waits."""

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
def handover(reports, clock, cpu):
    """A thousand messages were sent a moment ago."""
    handover = GilHandoff(reports, lambda: 5, clock=clock, cpu=cpu)
    handover.yield_to_poller()
    return handover


class NobodyAsks(SimpleQueue):
    def put(self, item):
        pytest.fail("waited")


@pytest.fixture
def waiting_fails(handover):
    handover._requests = NobodyAsks()


class Poller:
    """A poll thread whose polls the test lets begin and end."""

    def __init__(self, handover):
        self.waits, self.go, self.ended = [], threading.Semaphore(0), threading.Event()
        self.working = threading.Event()
        self._handover = handover
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self.ended.is_set():
            self.waits.append(self._handover.poll_timeout(0.1))
            self.working.set()
            self.go.acquire()

    def end(self):
        self.ended.set()
        self.go.release(1000)
        self._thread.join()


@pytest.fixture
def poller(handover):
    poller = Poller(handover)
    yield poller
    poller.end()


def aside(handover):
    thread = threading.Thread(target=handover.yield_to_poller, daemon=True)
    thread.start()
    return thread


def test_where_nobody_sends_much_the_poll_thread_waits_in_the_client(handover):
    assert [handover.poll_timeout(0.1), handover.poll_timeout(0.1)] == [0.1, 0.1]


def test_who_sends_much_does_not_wait_for_a_client_that_has_nothing_to_report(
    handover, poller, waiting_fails
):
    assert poller.working.wait(10)

    handover.yield_to_poller()
    poller.go.release()

    assert eventually(lambda: poller.waits[:2] == [0.1, 0])


def test_a_sender_waits_for_the_work_it_made_room_for(handover, poller, reports, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.gil_handoff._MAX_YIELD", 30)
    assert poller.working.wait(10)
    reports.append("there")
    sender = aside(handover)
    sender.join(0.2)
    assert sender.is_alive()  # reports are being collected

    poller.go.release(2)  # the end of that poll, and the one that was asked for
    sender.join(10)

    assert not sender.is_alive()


def test_a_poll_thread_that_is_stuck_holds_a_sender_up_for_a_moment_only_and_not_again_soon(
    handover, poller, reports
):
    assert poller.working.wait(10)
    reports.append("its callback never ends")

    sender = aside(handover)
    sender.join(10)

    assert not sender.is_alive()
    handover._requests = NobodyAsks()
    handover.yield_to_poller()


def test_a_callback_that_sends_does_not_wait_for_its_own_thread(handover, reports, waiting_fails):
    handover.poll_timeout(0.1)  # this is the poll thread now
    reports.append("there")

    handover.yield_to_poller()


def test_who_sends_a_thousand_now_and_then_is_not_in_the_way(handover, clock, reports, waiting_fails):
    reports.append("there")
    for _ in range(3):
        clock.advance(1)
        handover.yield_to_poller()

    assert [handover.poll_timeout(0.1), handover.poll_timeout(0.1)] == [0.1, 0.1]


@pytest.mark.parametrize(("spent", "waits"), [(0.02, 0.1), (0.045, 0)])
def test_who_pauses_between_messages_is_not_in_the_way(handover, clock, cpu, spent, waits):
    clock.advance(0.05)
    cpu.advance(spent)
    handover.yield_to_poller()

    assert handover.poll_timeout(0.1) == waits


def test_no_room_ends_the_rest(reports, clock, cpu):
    handover = GilHandoff(reports, iter(range(1_000_000)).__next__, clock=clock, cpu=cpu)  # ever more is sent
    handover.yield_to_poller()
    handover.yield_to_poller()
    handover.flush_soon()

    assert handover.poll_timeout(0.1) == 0


def test_who_finds_no_room_again_and_again_leaves_one_word_and_keeps_the_poll_thread_from_nothing(handover):
    handover.yield_to_poller()
    for _ in range(1000):
        handover.flush_soon()

    assert handover._requests.qsize() == 1
    assert [handover.poll_timeout(0.1), handover.poll_timeout(0.1)] == [0, 0.1]


def test_the_poll_thread_listens_again_when_nobody_sends_much_any_more(handover):
    handover.yield_to_poller()

    assert [handover.poll_timeout(0.1), handover.poll_timeout(0.1)] == [0, 0.1]


def test_nobody_waits_for_a_poll_thread_that_has_ended(handover, poller, reports, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.gil_handoff._MAX_YIELD", 30)
    assert poller.working.wait(10)
    reports.append("there")
    sender = aside(handover)
    assert eventually(lambda: not handover._requests.empty())

    handover.end()
    sender.join(10)

    assert not sender.is_alive()


def test_an_interrupted_sender_leaves_nothing_behind_that_would_stop_the_poll_thread(
    handover, reports, monkeypatch
):
    """An Event that is interrupted keeps its lock: the next who sets it waits for ever."""
    lock = Lock()
    monkeypatch.setattr("producer_core.delivery.gil_handoff.threading", Interrupting(lock))
    reports.append("there")
    with pytest.raises(KeyboardInterrupt):
        handover.yield_to_poller()

    assert [handover.poll_timeout(0.1), handover.poll_timeout(0.1), handover.poll_timeout(0.1)] == [0, 0, 0.1]


class Lock:
    """Interrupted while it is waited for."""

    def acquire(self, timeout=-1):
        if timeout >= 0:
            raise KeyboardInterrupt

    def release(self):
        pass


class Interrupting:
    def __init__(self, lock):
        self.Lock = lambda: lock
        self.get_ident = threading.get_ident

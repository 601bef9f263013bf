"""A forked child cannot send with its parent's producer, however it was forked."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import pytest

from producer_core import ReliableKafkaProducer
from producer_core._internal import forks
from producer_core.errors import ForkedProducer

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

FORKS = {
    "python": os.fork,
    "c": ctypes.PyDLL(None).fork,
}  # PyDLL keeps the interpreter's lock, as a C library that forks does


def run_in_child(fork, check):
    """Return the exit status of a child, which says whether `check` held there.

    Python does not notice a fork in a C library. If another thread requests the interpreter's lock at that moment, the child
    waits for a thread that it does not have (ceval_gil.h, drop_gil). Such a child is killed, and another one is forked.
    """
    for _ in range(5):
        child = fork()
        if child == 0:
            status = 2
            try:
                status = 0 if check() else 1
            finally:
                os._exit(status)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return None


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_fork_mark_is_true_only_in_its_own_process(fork):
    mark = forks.mark()

    assert mark[0]
    assert run_in_child(fork, lambda: not mark[0] and forks.mark()[0]) == 0
    assert mark[0]


def test_without_wipe_on_fork_the_process_id_is_compared(monkeypatch):
    monkeypatch.setattr(forks, "_WIPE_ON_FORK", -1)
    mark = forks.mark()

    assert mark[0]
    assert run_in_child(os.fork, lambda: not mark[0]) == 0


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_forked_child_gets_an_error_from_its_parents_producer(fork):
    """A fork by a C library went unnoticed: the child's messages were accepted but never sent."""
    with ReliableKafkaProducer("localhost:1", store=None, health_check_interval=3600) as producer:

        def refused():
            try:
                producer.send_message("orders", {"n": 1})
            except ForkedProducer:
                report = producer.close()
                return report.acknowledged == report.dead == 0
            return False

        assert run_in_child(fork, refused) == 0
        assert producer.pending_count == 0

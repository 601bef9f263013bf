"""A forked child sends nothing with its parent's producer, however it was forked."""

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
}  # holds the interpreter's lock, as a library that forks itself does


def in_a_child(fork, check):
    """The status with which a child ends that says whether `check` held there.

    Python does not hear of a C library's fork: where another thread asked for its lock at that very moment, the child waits
    for a thread that it does not have (ceval_gil.h, drop_gil). That is no answer, so another child is asked.
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
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return None


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_mark_holds_in_the_process_that_made_it_only(fork):
    here = forks.mark()

    assert here[0]
    assert in_a_child(fork, lambda: not here[0] and forks.mark()[0]) == 0
    assert here[0]


def test_where_memory_cannot_be_emptied_by_a_fork_the_process_is_asked_for(monkeypatch):
    monkeypatch.setattr(forks, "_WIPE_ON_FORK", -1)
    here = forks.mark()

    assert here[0]
    assert in_a_child(os.fork, lambda: not here[0]) == 0


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_forked_child_is_told_that_the_producer_is_its_parents(fork):
    """A fork by a C library was not heard of: what the child sent was accepted, and never left it."""
    with ReliableKafkaProducer("localhost:1", store=None, health_check_interval=3600) as producer:

        def refused():
            try:
                producer.send_message("orders", {"n": 1})
            except ForkedProducer:
                report = producer.close()
                return report.acknowledged == report.dead == 0
            return False

        assert in_a_child(fork, refused) == 0
        assert producer.pending_count == 0

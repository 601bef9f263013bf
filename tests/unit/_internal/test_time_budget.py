"""A time budget limits each wait inside it."""

from __future__ import annotations

import threading

import pytest

from producer_core._internal import time_budget
from producer_core.errors import StoreLocked

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def test_a_thread_without_time_budget_does_not_wait(store):
    """A closing producer has one time limit for all its steps."""
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with store.borrow(write=True):
            entered.set()
            leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(60)
    with time_budget.at_most(0.0), pytest.raises(StoreLocked), store.borrow(timeout=3600):
        pass
    with time_budget.at_most(0.0):
        store.close()  # the other thread's instance stays
    leave.set()
    holder.join(60)
    with time_budget.at_most(0.0), store.borrow() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_time_budget_that_expires_during_a_wait_ends_it(store):
    entered, leave, waited = threading.Event(), threading.Event(), time_budget.TimeBudget()
    ended = []

    def hold():
        with store.borrow(write=True):
            entered.set()
            leave.wait(60)

    def wait():
        time_budget.share(waited)
        with pytest.raises(StoreLocked), store.borrow(timeout=3600):
            pass
        ended.append(True)

    threads = [threading.Thread(target=hold), threading.Thread(target=wait)]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    waited.end_in(0.1)
    threads[1].join(60)
    leave.set()
    threads[0].join(60)

    assert ended == [True]

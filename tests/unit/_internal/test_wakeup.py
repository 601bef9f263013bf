"""Wakeup: a notification wakes all waiting threads, and none is missed."""

from __future__ import annotations

import threading

from producer_core._internal.wakeup import Wakeup
from tests.support import eventually


def test_a_notification_wakes_all_waiting_threads():
    wakeup, woken = Wakeup(), []

    def wait(number):
        wakeup.wait(60)
        woken.append(number)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(wakeup._waiting) == 4)
    wakeup.notify_all()
    for thread in waiting:
        thread.join(60)

    assert sorted(woken) == [0, 1, 2, 3]


def test_a_notification_during_the_check_of_the_condition_is_not_missed():
    wakeup = Wakeup()

    wakeup.wait(60, unless=lambda: wakeup.notify_all())  # returns None, so the thread would wait
    wakeup.wait(60, unless=lambda: True)

    assert wakeup._waiting == []


def test_a_timed_out_wait_leaves_nothing_behind():
    wakeup = Wakeup()
    wakeup.wait(0.001)
    wakeup.notify_all()

    assert wakeup._waiting == []

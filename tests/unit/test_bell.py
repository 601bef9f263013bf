"""The bell: a ring wakes all who wait, and none is missed by who asks after he waits."""

from __future__ import annotations

import threading

from producer_core._internal.wakeup import Wakeup
from tests.support import eventually


def test_a_ring_wakes_all_who_wait():
    bell, woken = Wakeup(), []

    def wait(number):
        bell.wait(60)
        woken.append(number)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(bell._waiting) == 4)
    bell.notify_all()
    for thread in waiting:
        thread.join(60)

    assert sorted(woken) == [0, 1, 2, 3]


def test_a_ring_while_somebody_asks_whether_he_must_wait_is_heard():
    bell = Wakeup()

    bell.wait(60, unless=lambda: bell.notify_all())  # it says no, and would wait
    bell.wait(60, unless=lambda: True)

    assert bell._waiting == []


def test_who_waited_in_vain_is_forgotten():
    bell = Wakeup()
    bell.wait(0.001)
    bell.notify_all()

    assert bell._waiting == []

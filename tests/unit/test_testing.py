"""The in-memory transport."""

from __future__ import annotations

import threading

import pytest

from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.transport import ClientQueueFull
from producer_core.testing import InMemoryTransport
from tests.support import eventually


class Listener:
    def __init__(self):
        self.rows = []

    def reports(self, rows):
        self.rows += rows

    def statistics(self, statistics):
        pass


def delivery(number):
    return Delivery(b"%016d" % number, number, "orders", None, b"")


def test_messages_without_an_outcome_count_against_the_capacity():
    taken, decide = threading.Event(), threading.Event()

    def script(delivery):
        taken.set()
        decide.wait(20)
        return "hold"

    transport = InMemoryTransport(ClientConfig("memory:1"), Listener(), script=script, capacity=2)
    transport.start()
    transport.produce(delivery(0))
    assert taken.wait(20)
    transport.produce(delivery(1))

    assert transport.outstanding() == 2
    with pytest.raises(ClientQueueFull):
        transport.produce(delivery(2))

    decide.set()
    eventually(lambda: transport.held == 2)
    assert transport.outstanding() == 2
    transport.release()
    assert transport.outstanding() == 0
    transport.stop()

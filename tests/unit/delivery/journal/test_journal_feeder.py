"""The feeder and the threads that write while it feeds: each message reaches the client in order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.journal import Journal
from producer_core.delivery.journal.journal_feeder import JournalFeeder
from producer_core.errors import JournalFull
from tests.support import eventually


class Target:
    """A client that takes messages while it has room."""

    transport = SimpleNamespace(settles_journal=False)

    def __init__(self):
        self.pending = {}
        self.offered = []
        self.has_room = True

    def offer(self, delivery):
        if self.has_room:
            self.pending[delivery.id] = delivery
            self.offered.append(delivery.seq)
        return self.has_room

    def renew(self, deliveries, waits):
        pass


class Steps:
    """Stops the feeder after it read the first message, and a batch after it was written and before it is offered."""

    def __init__(self, monkeypatch, feeder):
        self.first_read, self.read_on, self.feeding = threading.Event(), threading.Event(), threading.Event()
        self.written, self.offer = threading.Event(), threading.Event()
        self._read, self._append_many = feeder.journal.read, feeder.journal.append_many
        self._feed_records = feeder._feed_records
        monkeypatch.setattr(feeder.journal, "read", self.read)
        monkeypatch.setattr(feeder.journal, "append_many", self.append_many)
        monkeypatch.setattr(feeder, "_feed_records", self.feed_records)

    def read(self, after=-1):
        for record in self._read(after):
            yield record
            self.first_read.set()
            assert self.read_on.wait(20)

    def feed_records(self, records):
        self.feeding.set()
        self._feed_records(records)

    def append_many(self, deliveries):
        self._append_many(deliveries)
        self.written.set()
        assert self.offer.wait(20)


@pytest.fixture
def journal(tmp_path):
    with Journal.open(tmp_path / "journal") as opened:
        yield opened


@pytest.fixture
def target():
    return Target()


@pytest.fixture
def feeder(journal, target):
    made = JournalFeeder(journal, target)
    yield made
    made.stop()


def a_delivery(journal, seq):
    return Delivery(journal.ids.of(seq), seq, "orders", None, b"%d" % seq)


def leave_to_feeder(feeder, target, delivery):
    target.has_room = False
    feeder.take(delivery)
    target.has_room = True


def test_the_feeder_sends_no_message_of_a_batch_before_an_earlier_one(journal, feeder, target, monkeypatch):
    """Regression: of a batch with the messages 3 and 8, a feeder that read from message 5 on sent 8 first."""
    steps = Steps(monkeypatch, feeder)
    leave_to_feeder(feeder, target, a_delivery(journal, 5))
    feeder.start()
    assert steps.first_read.wait(20)
    with ThreadPoolExecutor() as pool:
        taken = pool.submit(feeder.take_many, [a_delivery(journal, seq) for seq in (3, 8)], [])
        assert steps.written.wait(20)

        steps.read_on.set()
        assert steps.feeding.wait(20)
        steps.offer.set()
        taken.result(20)
    eventually(lambda: len(target.offered) == 3)

    assert target.offered == [5, 3, 8]


def test_a_batch_that_the_journal_refuses_leaves_the_backlog_complete(journal, feeder, target, monkeypatch):
    leave_to_feeder(feeder, target, a_delivery(journal, 5))

    def refuse(deliveries):
        raise JournalFull("full")

    monkeypatch.setattr(journal, "append_many", refuse)
    with pytest.raises(JournalFull):
        feeder.take_many([a_delivery(journal, 3)], [])
    feeder.start()
    eventually(lambda: not feeder._behind)

    assert target.offered == [5]

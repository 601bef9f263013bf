"""Equal messages that a killed job left in its journal, with de-duplication: each is sent once, and none stands still."""

from __future__ import annotations

import threading
import time

import pytest

from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import PROBING
from producer_core.delivery.journal import Journal
from producer_core.delivery.journal.journal_feeder import JournalFeeder
from producer_core.testing import InMemoryTransport
from tests.services.test_backlog import crash, make, send, values
from tests.support import eventually


@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_two_that_were_written_down_in_another_order_than_they_were_numbered_do_not_wait_for_each_other(
    tmp_path, monkeypatch, ordering
):
    producer, _ = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    claim, numbered, written = producer.deduplicator.claim, [], threading.Event()

    def late(digest, topic, owner):
        """The thread with the earlier number loses the processor before it claims."""
        numbered.append(owner)
        if len(numbered) == 1:
            written.wait(10)
        return claim(digest, topic, owner)

    monkeypatch.setattr(producer.deduplicator, "claim", late)
    first = threading.Thread(target=send, args=(producer, [0], "orders", "a"))
    first.start()
    eventually(lambda: numbered)
    send(producer, [0], key="a")
    written.set()
    first.join(10)
    left = crash(tmp_path / "j", tmp_path)
    producer.close(timeout=0)

    again, transport = make(left, enable_deduplication=True, ordering=ordering)
    send(again, [1, 2], key="a")

    again.flush(15)
    assert values(transport) == [0, 1, 2]
    again.close()


@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_a_copy_that_was_looked_for_is_not_sent_by_its_lane_while_its_twin_is_on_its_way(
    tmp_path, monkeypatch, ordering
):
    producer, _ = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    producer.send_message("orders", b"first of the lane", "a")
    producer.send_message("orders", b"twin", "b", dedup_key="same")
    for number in range(200):
        producer.send_message("orders", b"%d" % number, f"c{number}")
    producer.send_message("orders", b"copy", "a", dedup_key="same")
    left = crash(tmp_path / "j", tmp_path)
    producer.close(timeout=0)
    claim = DuplicateGuard.claim
    monkeypatch.setattr(
        DuplicateGuard, "claim", lambda *about: time.sleep(0.002) or claim(*about)
    )  # Redis answers
    held = (b"first of the lane", b"twin")

    again, transport = make(
        left,
        lambda delivery: "hold" if delivery.value in held else None,
        enable_deduplication=True,
        ordering=ordering,
    )
    copy = eventually(
        lambda: next((one for one in [*again._engine.pending.values()] if one.value == b"copy"), None)
    )
    eventually(lambda: transport.held == 2 and copy.place is not PROBING, every=0.001)
    _acknowledge(transport, b"first of the lane")  # what stands behind it follows at once
    transport.release()
    again.flush(10)
    assert sorted(one for one in sent(transport) if not one.isdigit()) == [*held]
    again.close()


@pytest.mark.parametrize("key", ["a", None])
def test_exactly_once_a_copy_that_is_not_written_down_yet_leaves_its_claim_to_one_that_was_committed(
    tmp_path, monkeypatch, key
):
    producer, first = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, [0], key=key)
    eventually(lambda: first.held == 1)
    left = crash(tmp_path / "j", tmp_path)
    _as_exactly_once(monkeypatch)
    _claimed_while_renewed(monkeypatch)

    again, transport = make(left, memory={"landed": [first._held[0]]}, enable_deduplication=True)
    ends = []
    again.send_message("orders", b"0", key, on_delivery=ends.append)

    again.flush(10)
    assert (values(transport), [one.duplicate for one in ends]) == ([0], [True])
    again.close()
    producer.close(timeout=0)


def sent(transport):
    return [one.value for one in transport.log["orders"]]


def _acknowledge(transport, value):
    with transport._changed:
        one = next(held for held in transport._held if held.value == value)
        transport._held.remove(one)
    transport._report([(one, None)])


def _as_exactly_once(monkeypatch):
    """What was committed is found when it is handed over, and settled by the transport itself."""
    journals, opened, factory = [], Journal.open, InMemoryTransport.factory

    class Proving(InMemoryTransport):
        settles_journal = True

        def _report_row(self, delivery, code):
            landed = any(one.id == delivery.id for one in self.log[delivery.topic])
            report = super()._report_row(delivery, code)
            if code is None:
                journals[-1].settle([delivery.seq])
                if landed:
                    self.log[delivery.topic].pop()
            return report

    def kept(*where, **options):
        journals.append(opened(*where, **options))
        return journals[-1]

    monkeypatch.setattr(Journal, "open", staticmethod(kept))
    monkeypatch.setattr(
        InMemoryTransport,
        "factory",
        classmethod(lambda cls, made, **options: factory.__func__(Proving, made, **options)),
    )


def _claimed_while_renewed(monkeypatch):
    """A new message has its claim and is not written down yet when those of the journal claim again."""
    claimed, asked = threading.Event(), threading.Event()
    renew, take = DuplicateGuard.renew, JournalFeeder.take

    def late(*about):
        claimed.set()
        asked.wait(10)
        take(*about)

    def renewed(*about):
        claimed.wait(20)
        renew(*about)
        asked.set()

    monkeypatch.setattr(DuplicateGuard, "renew", renewed)
    monkeypatch.setattr(JournalFeeder, "take", late)

"""Equal messages in the journal of a killed process, with de-duplication: each is sent once, and none is blocked."""

from __future__ import annotations

import threading
import time

import pytest

from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import PROBING
from producer_core.delivery.journal import Journal
from producer_core.delivery.journal.journal_feeder import JournalFeeder
from producer_core.testing import InMemoryTransport
from tests.integration.delivery.test_journal_feeder import crash, make, send, values
from tests.support import eventually


@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_equal_messages_journaled_out_of_order_do_not_wait_for_each_other(tmp_path, monkeypatch, ordering):
    producer, _ = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    claim, owners, journaled = producer.deduplicator.claim, [], threading.Event()

    def delayed_claim(digest, topic, owner):
        """Delay the first claim, as if its thread were suspended."""
        owners.append(owner)
        if len(owners) == 1:
            journaled.wait(10)
        return claim(digest, topic, owner)

    monkeypatch.setattr(producer.deduplicator, "claim", delayed_claim)
    first = threading.Thread(target=send, args=(producer, [0], "orders", "a"))
    first.start()
    eventually(lambda: owners)
    send(producer, [0], key="a")
    journaled.set()
    first.join(10)
    crashed = crash(tmp_path / "j", tmp_path)
    producer.close(timeout=0)

    again, transport = make(crashed, enable_deduplication=True, ordering=ordering)
    send(again, [1, 2], key="a")

    again.flush(15)
    assert values(transport) == [0, 1, 2]
    again.close()


@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_a_probed_duplicate_is_not_sent_by_its_lane_while_its_original_is_in_flight(
    tmp_path, monkeypatch, ordering
):
    producer, _ = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    producer.send_message("orders", b"first of the lane", "a")
    producer.send_message("orders", b"original", "b", dedup_key="same")
    for number in range(200):
        producer.send_message("orders", b"%d" % number, f"c{number}")
    producer.send_message("orders", b"duplicate", "a", dedup_key="same")
    crashed = crash(tmp_path / "j", tmp_path)
    producer.close(timeout=0)
    claim = DuplicateGuard.claim
    # Simulates the round trip to Redis.
    monkeypatch.setattr(DuplicateGuard, "claim", lambda *args: time.sleep(0.002) or claim(*args))
    held = (b"first of the lane", b"original")

    again, transport = make(
        crashed,
        lambda delivery: "hold" if delivery.value in held else None,
        enable_deduplication=True,
        ordering=ordering,
    )
    duplicate = eventually(
        lambda: next((one for one in [*again._engine.pending.values()] if one.value == b"duplicate"), None)
    )
    eventually(lambda: transport.held == 2 and duplicate.state is not PROBING, every=0.001)
    _acknowledge(transport, b"first of the lane")  # the messages behind it follow at once
    transport.release()
    again.flush(10)
    assert sorted(one for one in sent(transport) if not one.isdigit()) == [*held]
    again.close()


@pytest.mark.parametrize("key", ["a", None])
def test_with_exactly_once_an_unjournaled_duplicate_gives_its_claim_to_a_committed_message(
    tmp_path, monkeypatch, key
):
    producer, first = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, [0], key=key)
    eventually(lambda: first.held == 1)
    crashed = crash(tmp_path / "j", tmp_path)
    _use_settling_transport(monkeypatch)
    _delay_journal_until_renewed(monkeypatch)

    again, transport = make(crashed, memory={"landed": [first._held[0]]}, enable_deduplication=True)
    reports = []
    again.send_message("orders", b"0", key, on_delivery=reports.append)

    again.flush(10)
    assert (values(transport), [one.duplicate for one in reports]) == ([0], [True])
    again.close()
    producer.close(timeout=0)


def sent(transport):
    return [one.value for one in transport.log["orders"]]


def _acknowledge(transport, value):
    with transport._changed:
        one = next(held for held in transport._held if held.value == value)
        transport._held.remove(one)
    transport._report([(one, None)])


def _use_settling_transport(monkeypatch):
    """Make the transport find committed messages itself, and settle them in the journal, as exactly-once delivery does."""
    journals, open_original, factory = [], Journal.open, vars(InMemoryTransport)["factory"]

    class SettlingTransport(InMemoryTransport):
        settles_journal = True

        def _report_row(self, delivery, code):
            landed = any(one.id == delivery.id for one in self.log[delivery.topic])
            report = super()._report_row(delivery, code)
            if code is None:
                journals[-1].settle([delivery.seq])
                if landed:
                    self.log[delivery.topic].pop()
            return report

    def open_journal(*args, **options):
        journals.append(open_original(*args, **options))
        return journals[-1]

    monkeypatch.setattr(Journal, "open", staticmethod(open_journal))
    monkeypatch.setattr(
        InMemoryTransport,
        "factory",
        classmethod(lambda cls, made, **options: factory.__func__(SettlingTransport, made, **options)),
    )


def _delay_journal_until_renewed(monkeypatch):
    """Delay the journal write of a new message with a claim until the messages of the journal have claimed again."""
    claimed, renewed = threading.Event(), threading.Event()
    renew, take = DuplicateGuard.renew, JournalFeeder.take

    def delayed_take(*args):
        claimed.set()
        renewed.wait(10)
        take(*args)

    def renew_after_claim(*args):
        claimed.wait(20)
        renew(*args)
        renewed.set()

    monkeypatch.setattr(DuplicateGuard, "renew", renew_after_claim)
    monkeypatch.setattr(JournalFeeder, "take", delayed_take)

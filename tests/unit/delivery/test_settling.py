"""Settled messages are in the set until a pending log has recorded them as done."""

from __future__ import annotations

import pytest

from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.settling import SettlingSet


def delivery(seq, *, replayed=False):
    made = Delivery(b"id-%d" % seq, seq, "orders", None, b"v")
    if replayed:
        made.callbacks = Callbacks(on_replayed=lambda result: None)
    return made


@pytest.fixture
def deliveries():
    return [delivery(seq) for seq in range(4)]


def settling(deliveries, *, settles_journal=False):
    return SettlingSet({one.id: one for one in deliveries}, settles_journal=settles_journal)


def test_a_message_is_removed_once(deliveries):
    found = settling(deliveries)

    assert found.remove(deliveries[0])
    assert not found.remove(deliveries[0])
    assert found.remove_many(deliveries[:2]) == [False, True]
    assert found.unfinished == 2


def test_a_message_is_held_while_it_is_pending_or_not_recorded(deliveries):
    found = settling(deliveries[:2])
    found.remove(deliveries[0])

    assert found.contains(deliveries[0].id, 0)
    assert found.contains(deliveries[1].id, 1)
    assert not found.contains(deliveries[2].id, 2)
    assert found.of([0, 1, 2]) == [0]


def test_an_acknowledged_message_is_finished_until_it_is_recorded(deliveries):
    found = settling(deliveries)
    found.remove_many(deliveries[:3])
    found.acknowledged(deliveries[:2])
    found.finished([2])

    assert found.unfinished == 0
    assert found.take_finished() == [0, 1, 2]
    assert found.take_finished() == []
    assert found.of([0, 1, 2]) == [0, 1, 2]
    found.written([0, 1, 2])
    assert found.of([0, 1, 2]) == []


def test_a_transport_that_settles_the_journal_records_acknowledged_messages_itself(deliveries):
    found = settling(deliveries, settles_journal=True)
    found.remove_many(deliveries[:2])
    found.acknowledged(deliveries[:1])

    assert found.take_finished() == []
    assert found.of([0, 1]) == [1]


def test_the_message_of_a_replay_is_never_in_the_set():
    replay = delivery(5, replayed=True)
    found = settling([replay])

    assert found.remove(replay)
    found.acknowledged([replay])
    assert (found.unfinished, found.take_finished()) == (0, [])

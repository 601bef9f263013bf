"""The outcome of a message in a transaction, with the methods of the client's message."""

from __future__ import annotations

from producer_core.delivery.exactly_once.log_positions import LogPosition
from producer_core.delivery.exactly_once.outcome import TransactionOutcome
from tests.fixtures.exactly_once import delivery


def test_a_committed_message_has_its_position(monkeypatch):
    message = delivery(5, partition=1)
    outcome = TransactionOutcome(message, position=LogPosition("t", 1, 42, timestamp=1_000), latency=0.25)

    assert (outcome.topic(), outcome.partition(), outcome.offset()) == ("t", 1, 42)
    assert (outcome.timestamp(), outcome.latency()) == ((1, 1_000), 0.25)
    assert outcome.headers() == message.record_headers


def test_a_failed_message_has_its_verdict_and_no_position():
    outcome = TransactionOutcome(delivery(5, partition=1), "not_sent", held_back="its id was taken")

    assert (outcome.partition(), outcome.offset(), outcome.timestamp()) == (1, None, (1, -1))
    assert (outcome.verdict, outcome.held_back, outcome.latency()) == ("not_sent", "its id was taken", None)

"""Questions about a topic's ends that precede a `send`, while a broker answers with transient errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer_core.cli.send import recover_position
from producer_core.errors import BrokerUnreachable
from producer_core.kafka import clients

NOT_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)


class Broker:
    """Answer `refusals` questions about a partition's ends with an error, and then with its ends."""

    def __init__(self, refusals, error=NOT_LEADER):
        self.refusals, self.error, self.asked = refusals, error, 0

    def list_topics(self, topic, timeout):
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

    def get_watermark_offsets(self, where, timeout, cached):
        self.asked += 1
        if self.asked <= self.refusals:
            raise KafkaException(self.error)
        return 0, 7


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(clients, "_AGAIN", 0.0)


def test_a_topic_that_was_just_made_and_has_no_leader_yet_is_asked_again():
    broker = Broker(3)
    assert recover_position._spans(broker, "orders") == {0: (0, 7)}
    assert broker.asked == 4


def test_a_transient_error_that_does_not_pass_is_told_at_the_bound(monkeypatch):
    monkeypatch.setattr(clients, "_ANSWER", 0.0)
    with pytest.raises(BrokerUnreachable, match="offsets cannot be asked: Broker: Not leader"):
        recover_position._spans(Broker(10**9), "orders")


def test_a_refusal_is_told_at_once():
    broker = Broker(10**9, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerUnreachable):
        recover_position._spans(broker, "orders")
    assert broker.asked == 1

"""The watermark queries before a `send`, while a broker answers with transient errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer_core.cli.send import recover_position
from producer_core.errors import BrokerUnreachable
from producer_core.kafka import clients

NOT_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)


class Broker:
    """Answers `failures` watermark queries with an error, and later ones with the watermarks."""

    def __init__(self, failures, error=NOT_LEADER):
        self.failures, self.error, self.queries = failures, error, 0

    def list_topics(self, topic, timeout):
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

    def get_watermark_offsets(self, partition, timeout, cached):
        self.queries += 1
        if self.queries <= self.failures:
            raise KafkaException(self.error)
        return 0, 7


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(clients, "_RETRY_PAUSE_S", 0.0)


def test_a_query_is_repeated_while_a_new_topic_has_no_leader():
    broker = Broker(3)
    assert recover_position._spans(broker, "orders") == {0: (0, 7)}
    assert broker.queries == 4


def test_a_persistent_transient_error_is_raised_at_the_time_limit(monkeypatch):
    monkeypatch.setattr(clients, "_RETRY_LIMIT_S", 0.0)
    with pytest.raises(BrokerUnreachable, match="offsets are not available: Broker: Not leader"):
        recover_position._spans(Broker(10**9), "orders")


def test_an_authorization_error_is_raised_at_once():
    broker = Broker(10**9, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerUnreachable):
        recover_position._spans(broker, "orders")
    assert broker.queries == 1

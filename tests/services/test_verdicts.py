"""Verdicts on a real librdkafka: what is said of a message that came back."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from tests.support import eventually


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 1}) as running:
        yield running


def send(broker, **config):
    quick = RetryConfig(max_retries=0)
    with ReliableKafkaProducer(broker.bootstrap_servers, config, quick, store=None) as producer:
        message_id = producer.send_message("orders", {"n": 1})
        return eventually(lambda: producer.dlq.get(message_id), timeout=20)


def test_a_refusal_in_the_first_second_is_never_called_not_sent(broker):
    broker.reject("orders", "POLICY_VIOLATION")
    assert send(broker).verdict in ("rejected", "possibly_persisted")


def test_a_refusal_after_a_hidden_retry_is_possibly_persisted(broker):
    broker.fail_next("orders", "REQUEST_TIMED_OUT", 1)
    broker.fail_next("orders", "POLICY_VIOLATION", 1)
    assert send(broker).verdict == "possibly_persisted"


def test_a_quick_refusal_of_a_warm_client_is_rejected(broker):
    quick = RetryConfig(max_retries=0)
    with ReliableKafkaProducer(broker.bootstrap_servers, None, quick, store=None) as producer:
        producer.send_message("orders", {"warm": 1})
        producer.flush(10)
        broker.fail_next("orders", "POLICY_VIOLATION", 1)
        message_id = producer.send_message("orders", {"n": 1})
        letter = eventually(lambda: producer.dlq.get(message_id), timeout=20)
    assert letter.verdict == "rejected"


def test_a_time_out_of_a_client_that_had_sent_is_possibly_persisted(broker):
    quick = RetryConfig(max_retries=0)
    config = {"delivery_timeout_ms": 1500, "linger_ms": 0}
    with ReliableKafkaProducer(broker.bootstrap_servers, config, quick, store=None) as producer:
        producer.send_message("orders", {"warm": 1})
        producer.flush(10)
        broker.down()
        message_id = producer.send_message("orders", {"n": 1})
        letter = eventually(lambda: producer.dlq.get(message_id), timeout=20)
    assert (letter.verdict, letter.code) == ("possibly_persisted", "_MSG_TIMED_OUT")

"""`producer.dlq` with and without a store: the methods that both have."""

from __future__ import annotations

import pytest

from producer_core import DeadLetterFilter, ReliableKafkaProducer, RetryConfig
from producer_core.testing import InMemoryTransport


@pytest.fixture(params=["store", "memory"])
def queue(request, tmp_path):
    script = {"orders": "POLICY_VIOLATION", "refunds": "MSG_SIZE_TOO_LARGE"}
    with ReliableKafkaProducer(
        "memory:1",
        store=tmp_path / "store.duckdb" if request.param == "store" else None,
        retry_config=RetryConfig(max_retries=0),
        transport=InMemoryTransport.factory([], script=lambda delivery: script.get(delivery.topic)),
        run_replays=False,
    ) as producer:
        for topic in ("orders", "refunds", "orders", "payments"):
            producer.send_message(topic, {"n": 1})
        producer.flush()
        yield producer.dlq


def test_dead_letters_are_found_the_latest_first(queue):
    assert [dead_letter.topic for dead_letter in queue.find()] == ["orders", "refunds", "orders"]
    assert [one.topic for one in queue.find(DeadLetterFilter(topic="refunds"))] == ["refunds"]
    assert [one.topic for one in queue.find(limit=1, offset=1)] == ["refunds"]


def test_dead_letters_are_counted(queue):
    assert queue.count() == len(queue) == 3
    assert queue.count(DeadLetterFilter(topic="orders")) == 2


def test_a_dead_letter_is_read_with_its_value(queue):
    (found,) = queue.find(DeadLetterFilter(topic="refunds"))
    assert queue.get(found.message_id).value == b'{"n":1}'

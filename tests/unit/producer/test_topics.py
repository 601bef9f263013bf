"""The metadata of topics, which the producer asks the brokers for, and the producer as an asynchronous context manager."""

from __future__ import annotations

import asyncio

import pytest

from producer_core import BrokerError, CloseReport, ConfigError, ProducerClosed, ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.errors import BrokerUnreachable
from tests.fixtures.enqueueing import memory_producer

QUIET = {"store": None, "run_replays": False}


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 3, "paid": 1}) as running:
        yield running


@pytest.fixture(scope="module")
def producer(broker):
    with ReliableKafkaProducer(broker.bootstrap_servers, **QUIET) as producer:
        yield producer


def test_the_metadata_is_that_of_confluent_kafka(producer):
    assert set(producer.list_topics().topics) >= {"orders", "paid"}
    assert set(producer.list_topics("orders").topics) == {"orders"}
    assert len(producer.list_topics("orders").topics["orders"].partitions) == 3


def test_the_partitions_of_a_topic_are_a_set_of_numbers(producer):
    assert producer.partitions_for("orders") == {0, 1, 2}


@pytest.mark.parametrize("topic", [None, 5, b"orders", ["orders"], "", "a" * 300, "a/b", "."])
def test_a_topic_without_a_valid_name_is_refused(producer, topic):
    with pytest.raises(ConfigError, match="is not a topic name"):
        producer.partitions_for(topic)


def test_a_topic_that_does_not_exist_is_reported_and_not_created(producer):
    for _ in range(2):
        with pytest.raises(BrokerError, match="'missing'"):
            producer.partitions_for("missing")
    assert "missing" not in producer.list_topics().topics


def test_without_a_broker_the_metadata_is_unreachable():
    with (
        ReliableKafkaProducer("127.0.0.1:9", **QUIET) as producer,
        pytest.raises(BrokerUnreachable, match="No broker responded at 127"),
    ):
        producer.list_topics(timeout=0.5)


def test_without_a_broker_the_partitions_are_unreachable():
    with (
        ReliableKafkaProducer("127.0.0.1:9", **QUIET) as producer,
        pytest.raises(BrokerUnreachable, match=r"No broker responded at 127.*Connection refused"),
    ):
        producer.partitions_for("orders", timeout=0.5)


def test_async_with_closes_the_producer_and_leaves_the_event_loop_free():
    async def send():
        ticks = []

        async def tick():
            while True:
                ticks.append(None)
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with memory_producer()[0] as producer:
            report = await producer.send_async("orders", {"n": 1})
            before = len(ticks)
        ticking.cancel()
        return producer, report, len(ticks) - before

    producer, report, ticks = asyncio.run(send())

    assert report.error is None
    assert isinstance(producer.close(), CloseReport)
    assert ticks > 0, "the loop ran while the producer closed"
    with pytest.raises(ProducerClosed):
        producer.send_message("orders", {"n": 2})

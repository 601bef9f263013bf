"""A simulated shop, alone and on an embedded broker."""

from __future__ import annotations

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core import DataGenerationConfig, ECommerceDataGenerator, KafkaDataProducer
from producer_core.brokers import embedded
from producer_core.simulate.traffic import TOPICS
from tests.fixtures.shop import SMALL


@pytest.fixture
def shop():
    return ECommerceDataGenerator(DataGenerationConfig(**SMALL), seed=1)


@pytest.fixture(scope="module")
def broker():
    with embedded.start(topics=dict.fromkeys(TOPICS, 1)) as broker:
        yield broker


@pytest.fixture
def small_config():
    return DataGenerationConfig(
        total_users=100, total_products=50, base_transaction_rate=50, base_event_rate=100
    )


@pytest.fixture
def read(broker):
    """Return the records of a topic since the test started: key and value."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
    starts = {
        topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1] for topic in TOPICS
    }

    def records(topic):
        start, end = starts[topic], consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
        consumer.assign([TopicPartition(topic, 0, start)])
        found = []
        while len(found) < end - start:
            message = consumer.poll(10)
            assert message is not None and message.error() is None
            found.append((message.key().decode(), orjson.loads(message.value())))
        return found

    yield records
    consumer.close()


@pytest.fixture
def legacy(broker, small_config):
    producer = KafkaDataProducer(ECommerceDataGenerator(small_config, seed=1), broker.bootstrap_servers)
    yield producer
    producer.close()

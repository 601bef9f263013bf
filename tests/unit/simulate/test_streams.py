"""Scenarios, history and the older interface, sent to a broker."""

import threading
from collections import Counter
from datetime import datetime, timedelta

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core import (
    DataGenerationConfig,
    DataGenerationOrchestrator,
    ECommerceDataGenerator,
    KafkaDataProducer,
    ReliableKafkaProducer,
    TemporalPatterns,
)
from producer_core.brokers import embedded
from producer_core.simulate.streams import Stream, Streams
from producer_core.simulate.traffic import TOPICS, TrafficSource, rate_now
from tests.support import eventually

SECOND = 1 / 3600


@pytest.fixture(scope="module")
def broker():
    with embedded.start(topics=dict.fromkeys(TOPICS, 1)) as broker:
        yield broker


@pytest.fixture
def shop():
    return DataGenerationConfig(
        total_users=100, total_products=50, base_transaction_rate=50, base_event_rate=100
    )


@pytest.fixture
def work(broker, shop):
    work = DataGenerationOrchestrator(shop, bootstrap_servers=broker.bootstrap_servers, store=None, seed=1)
    yield work
    work.close()


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


@pytest.mark.parametrize("scenario", ["normal_traffic", "peak_traffic", "fraud_testing", "maintenance_mode"])
def test_a_scenario_sends_messages(work, read, scenario):
    """With the reliable producer, scenarios used to send nothing and sleep until the time was over."""
    work.run_scenario(scenario, duration_hours=0.4 * SECOND, rate=300)

    sent = work.producer.get_stats()["messages_sent"]
    assert sent > 30
    assert sum(len(read(topic)) for topic in work.scenarios[scenario]["topics"]) == sent


def test_the_fraud_override_applies_to_purchases_and_is_reset(work, read):
    """It used to change a value that the generator had copied before."""
    work.run_scenario("fraud_testing", duration_hours=0.4 * SECOND, rate=1000)

    purchases = [record for _, record in read("transactions")]
    frauds = {record["transaction_id"] for record in purchases if record["is_fraud"]}
    assert 0.02 < len(frauds) / len(purchases) < 0.3
    assert {record["transaction_id"] for _, record in read("fraud-alerts")} <= frauds
    assert work.config.fraud_rate == 0.001


def test_records_are_keyed_by_their_topic(work, read):
    work.run_topics(list(TOPICS), 0.4 * SECOND, rate=1000)

    for topic, field in {
        "transactions": "user_id",
        "user-events": "session_id",
        "product-updates": "product_id",
        "fraud-alerts": "transaction_id",
        "analytics-results": "metric_type",
    }.items():
        assert all(key == record[field] for key, record in read(topic))
    assert read("analytics-results")


def test_the_scenarios_are_the_four_known_ones(work):
    rates = {name: scenario["rate_multiplier"] for name, scenario in work.scenarios.items()}

    assert rates == {
        "normal_traffic": 1.0,
        "peak_traffic": 3.0,
        "fraud_testing": 0.5,
        "maintenance_mode": 0.1,
    }


def test_the_error_for_an_unknown_scenario_names_it(work):
    with pytest.raises(ValueError, match="Unknown scenario: rush_hour"):
        work.run_scenario("rush_hour")


def test_stop_ends_a_scenario_of_an_hour(work):
    runner = threading.Thread(target=work.run_scenario, args=("normal_traffic", 1.0), kwargs={"rate": 100})
    runner.start()
    eventually(lambda: work.producer.get_stats()["messages_sent"] > 5)

    work.stop()
    runner.join(10)

    assert not runner.is_alive()


def test_history_is_sent_with_keys_and_counted(work, read):
    """Its batches used to have no keys."""
    result = work.generate_historical_data(days=1, batch_size=500)

    counts = {"transactions": 50 * 24, "user-events": 100 * 24, "product-updates": 100}
    for topic, count in counts.items():
        assert {name: result[topic][name] for name in ("total", "sent", "failed", "duplicate")} == {
            "total": count,
            "sent": count,
            "failed": 0,
            "duplicate": 0,
        }
    events = read("user-events")
    assert len(events) == counts["user-events"]
    assert all(key == record["session_id"] for key, record in events)
    stamps = [datetime.fromisoformat(record["timestamp"]) for _, record in events]
    assert datetime.now() - timedelta(days=1.1) < min(stamps) < max(stamps) < datetime.now()


def test_thirty_days_are_not_built_in_memory(shop):
    """All 72 million events used to be built as one list before the first was sent."""
    sizes = []

    class Counting(ReliableKafkaProducer):
        def send_batch(self, topic, messages, key_extractor=None):
            sizes.append(len(messages))
            if len(sizes) == 3:
                work.stop()
            return {
                "total": len(messages),
                "sent": len(messages),
                "failed": 0,
                "duplicate": 0,
                "message_ids": ["x"],
            }

    shop.base_event_rate = shop.base_transaction_rate = 1_000_000
    with Counting("localhost:1", store=None, run_replays=False) as producer:
        work = DataGenerationOrchestrator(shop, producer=producer, seed=1)
        result = work.generate_historical_data(30, batch_size=100)

    assert sizes == [100, 100, 100, 0, 0]
    assert result["transactions"]["sent"] == 300 and result["transactions"]["message_ids"] == []


def test_comprehensive_stats_work_with_either_producer(broker, shop, work):
    """It used to raise AttributeError with the reliable producer."""
    legacy = DataGenerationOrchestrator(shop, False, bootstrap_servers=broker.bootstrap_servers)

    for orchestrator in (work, legacy):
        stats = orchestrator.get_comprehensive_stats()
        assert set(stats) == {"generator_stats", "producer_stats", "producer_health", "config"}
        assert stats["producer_stats"]["messages_sent"] == 0
    legacy.close()


# the older interface


@pytest.fixture
def legacy(broker, shop):
    producer = KafkaDataProducer(ECommerceDataGenerator(shop, seed=1), broker.bootstrap_servers)
    yield producer
    producer.close()


def test_a_batch_before_streaming_counts_delivered_messages(legacy, read):
    """It used to return 0 for delivered messages unless streaming to that topic had started."""
    records = legacy.generator.generate_transactions(25)

    assert legacy.send_batch("transactions", records) == 25
    assert [key for key, _ in read("transactions")] == [record["user_id"] for record in records]
    stats = legacy.get_stats()
    assert (stats["messages_sent"], stats["messages_failed"]) == (25, 0)
    assert set(stats["topic_stats"]["transactions"]) == {
        "messages_sent", "messages_failed", "bytes_sent", "last_message_time",
    }  # fmt: skip
    assert "elapsed_seconds" not in stats


def test_a_batch_to_an_unknown_topic_is_rejected(legacy):
    with pytest.raises(ValueError, match="Unknown topic: orders"):
        legacy.send_batch("orders", [])


def test_streaming_sends_until_it_is_stopped(legacy, caplog):
    legacy.start_streaming(["transactions", "no-such-topic"], rate_multiplier=1000)
    eventually(lambda: legacy.get_stats()["messages_sent"] > 20)
    health = legacy.health_check()
    legacy.start_streaming()  # a second start only warns
    legacy.stop_streaming()

    assert (
        health["overall_status"] == "HEALTHY" and health["streaming_active"] and health["active_threads"] == 1
    )
    assert {"elapsed_seconds", "messages_per_second", "bytes_per_second"} <= set(legacy.get_stats())
    assert legacy.health_check()["active_threads"] == 0
    assert [record.getMessage() for record in caplog.records if record.name.endswith("streaming")] == [
        "unknown topic ignored",
        "already streaming; nothing started",
    ]


def test_streaming_ends_after_its_duration(legacy):
    legacy.start_streaming(["transactions"], duration_hours=0.2 * SECOND, rate_multiplier=1000)

    eventually(lambda: not legacy.health_check()["streaming_active"])


def test_a_cluster_without_the_topics_is_degraded():
    with embedded.start(topics={"transactions": 1}) as small:
        legacy = KafkaDataProducer(ECommerceDataGenerator(seed=1), small.bootstrap_servers)
        health = legacy.health_check()
        legacy.close()

    assert health["overall_status"] == "DEGRADED"
    assert health["missing_topics"] == ["user-events", "product-updates", "fraud-alerts", "analytics-results"]


# rates


def test_a_rate_follows_the_hour_and_is_at_least_a_tenth():
    patterns = TemporalPatterns(vars(DataGenerationConfig()))
    traffic = TOPICS["transactions"]

    def at(hour):
        return rate_now(traffic, patterns.get_temporal_context(datetime(2024, 6, 11, hour)), 1.0) * 3600

    assert at(12) == pytest.approx(10_000)
    assert at(10) == pytest.approx(10_000 * 3 * 1.5)
    assert at(3) == pytest.approx(2000)


def test_alerts_without_purchases_refer_to_generated_purchases():
    alone = TrafficSource(ECommerceDataGenerator(seed=1), purchases=False)
    beside = TrafficSource(ECommerceDataGenerator(seed=1))

    assert alone.next("fraud-alerts")["alert_type"] == "fraud_detected"
    assert beside.next("fraud-alerts") is None


def test_streams_keep_their_rates():
    sent = Counter()
    streams = Streams()

    streams.start(
        [
            Stream("fast", lambda: 200.0, lambda: sent.update(["fast"])),
            Stream("slow", lambda: 20.0, lambda: sent.update(["slow"])),
        ],
        duration=0.5,
    )
    streams.wait()

    assert sent["fast"] == pytest.approx(100, abs=3) and sent["slow"] == pytest.approx(10, abs=1)
    assert streams.active == 0

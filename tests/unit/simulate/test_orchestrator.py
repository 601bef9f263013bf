"""Scenarios: their messages, their fraud rate, and their history."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest

from producer_core import DataGenerationOrchestrator, ReliableKafkaProducer
from producer_core.simulate.traffic import TOPICS
from tests.fixtures.shop import SECOND
from tests.support import eventually


@pytest.fixture
def work(broker, small_config):
    work = DataGenerationOrchestrator(
        small_config, bootstrap_servers=broker.bootstrap_servers, store=None, seed=1
    )
    yield work
    work.close()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["normal_traffic", "peak_traffic", "fraud_testing", "maintenance_mode"])
def test_a_scenario_sends_messages(work, read, scenario):
    """With the reliable producer, scenarios used to send nothing and sleep until the time was over."""
    work.run_scenario(scenario, duration_hours=0.4 * SECOND, rate=300)

    sent = work.producer.get_stats()["messages_sent"]
    assert sent > 30
    assert sum(len(read(topic)) for topic in work.scenarios[scenario]["topics"]) == sent


@pytest.mark.slow
def test_the_fraud_override_applies_to_purchases_and_is_reset(work, read):
    """It used to change a value that the generator had copied before."""
    work.run_scenario("fraud_testing", duration_hours=0.4 * SECOND, rate=1000)

    purchases = [record for _, record in read("transactions")]
    frauds = {record["transaction_id"] for record in purchases if record["is_fraud"]}
    assert 0.02 < len(frauds) / len(purchases) < 0.3
    assert {record["transaction_id"] for _, record in read("fraud-alerts")} <= frauds
    assert work.config.fraud_rate == 0.001


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_thirty_days_are_not_built_in_memory(small_config):
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

    small_config.base_event_rate = small_config.base_transaction_rate = 1_000_000
    with Counting("localhost:1", store=None, run_replays=False) as producer:
        work = DataGenerationOrchestrator(small_config, producer=producer, seed=1)
        result = work.generate_historical_data(30, batch_size=100)

    assert sizes == [100, 100, 100, 0, 0]
    assert result["transactions"]["sent"] == 300 and result["transactions"]["message_ids"] == []


def test_comprehensive_stats_work_with_either_producer(broker, small_config, work):
    """It used to raise AttributeError with the reliable producer."""
    legacy = DataGenerationOrchestrator(small_config, False, bootstrap_servers=broker.bootstrap_servers)

    for orchestrator in (work, legacy):
        stats = orchestrator.get_comprehensive_stats()
        assert set(stats) == {"generator_stats", "producer_stats", "producer_health", "config"}
        assert stats["producer_stats"]["messages_sent"] == 0
    legacy.close()

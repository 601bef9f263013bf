"""The earlier producer of the simulated shop: batches and streams."""

from __future__ import annotations

import pytest

from producer_core import ECommerceDataGenerator, KafkaDataProducer
from producer_core.brokers import embedded
from tests.fixtures.shop import SECOND
from tests.support import eventually


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
        "unknown topic ignored: topic=no-such-topic",
        "already streaming; nothing started",
    ]


@pytest.mark.slow
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

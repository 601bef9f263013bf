"""Frauds: their anomalies and their rate."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from producer_core import FraudPatterns, FraudType, GeographicPatterns
from tests.fixtures.shop import CONFIG


def test_anomalies_have_the_documented_values():
    patterns = FraudPatterns(CONFIG, Random(3))
    home = GeographicPatterns(CONFIG, Random(1)).generate_location("Europe")
    start = datetime(2024, 6, 1)

    attack = patterns.generate_velocity_attack("user_000001", start)

    assert 5 <= len(attack) <= 15
    for record in attack:
        assert set(record) == {"user_id", "timestamp", "amount", "fraud_type", "fraud_indicator"}
        assert start <= record["timestamp"] <= start + timedelta(seconds=300)
        assert 100 <= record["amount"] <= 500
    assert all(patterns.generate_location_anomaly(home).region != "Europe" for _ in range(50))
    for _ in range(100):
        amount = patterns.generate_amount_anomaly(100)
        assert 500 <= amount <= 2000 or 0.01 <= amount <= 1.0
        assert patterns.generate_time_anomaly("UTC+1").hour in (2, 3, 4)
        assert patterns.generate_pattern_anomaly(["Books", "Clothing"]) not in ("Books", "Clothing")
    assert set(patterns.generate_device_anomaly()) == {
        "device_id",
        "device_type",
        "os",
        "browser",
        "first_seen",
    }


def test_the_fraud_rate_is_read_at_each_draw():
    config = {"fraud_rate": 0.0, "fraud_patterns": {"time_anomaly": 1.0}}
    patterns = FraudPatterns(config)
    assert not patterns.should_inject_fraud()

    config["fraud_rate"] = 1.0

    assert patterns.should_inject_fraud()
    assert patterns.select_fraud_type() is FraudType.TIME_ANOMALY

"""The rate of each topic, and the alerts of generated purchases."""

from __future__ import annotations

from datetime import datetime

import pytest

from producer_core import DataGenerationConfig, ECommerceDataGenerator, TemporalPatterns
from producer_core.simulate.traffic import TOPICS, TrafficSource, rate_now


def test_a_rate_follows_the_hour_and_is_at_least_a_tenth():
    patterns = TemporalPatterns(vars(DataGenerationConfig()))
    traffic = TOPICS["transactions"]

    def at(hour):
        return rate_now(traffic, patterns.get_temporal_context(datetime(2024, 6, 11, hour)), 1.0) * 3600

    assert at(12) == pytest.approx(10_000)
    assert at(10) == pytest.approx(10_000 * 3 * 1.5)
    assert at(3) == pytest.approx(2000)


@pytest.mark.slow
def test_alerts_without_purchases_refer_to_generated_purchases():
    alone = TrafficSource(ECommerceDataGenerator(seed=1), purchases=False)
    beside = TrafficSource(ECommerceDataGenerator(seed=1))

    assert alone.next("fraud-alerts")["alert_type"] == "fraud_detected"
    assert beside.next("fraud-alerts") is None

"""The messages per second of each topic."""

from __future__ import annotations

from datetime import datetime

import pytest

from producer_core import DataGenerationConfig
from producer_core.simulate.generator import ECommerceDataGenerator
from producer_core.simulate.rates import Rates
from producer_core.simulate.traffic import TOPICS
from tests.fixtures.shop import SMALL


@pytest.fixture
def generator():
    return ECommerceDataGenerator(DataGenerationConfig(**SMALL), seed=1)


def test_a_total_is_shared_in_proportion_to_the_averages(generator):
    topics = ["transactions", "user-events"]
    rates = Rates(generator, topics, total=30.0)

    found = [rates.of(topic) for topic in topics]

    assert sum(found) == pytest.approx(30.0)
    assert found[0] / found[1] == pytest.approx(
        TOPICS["transactions"].per_hour / TOPICS["user-events"].per_hour
    )
    assert Rates(generator, topics, total=0.0).of("transactions") == 0.0


def test_a_multiplier_applies_to_the_rate_of_the_hour(generator, monkeypatch):
    context = generator.temporal_patterns.get_temporal_context
    fixed = context(datetime(2024, 11, 5, 12))
    monkeypatch.setattr(type(generator.temporal_patterns), "get_temporal_context", lambda *_: fixed)

    once, three_times = (
        Rates(generator, TOPICS, multiplier=factor).of("transactions") for factor in (1.0, 3.0)
    )

    assert once > 0
    assert three_times == pytest.approx(3 * once)

"""The load of the simulated shop."""

from __future__ import annotations

import pytest

from producer_core.simulate.load import SHARES, ShopLoad, topic_names


def test_the_load_bounds_the_rejected_messages():
    load = ShopLoad(None, rate=20_000, seed=1)

    assert sum(SHARES.values()) == pytest.approx(1.0, abs=0.01)
    for second in range(90):
        assert load.rate_of("payments", second) < 11 and load.rate_of("audit-log", second) < 1
        assert load.rate_of("user-events", second) > 9000
    assert set(topic_names("demo.")) == {f"demo.{topic}" for topic in SHARES}

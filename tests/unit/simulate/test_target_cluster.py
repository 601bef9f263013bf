"""The cluster and the store of a demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_core.errors import BrokerUnreachable
from producer_core.simulate.target_cluster import real_target, store_path


def test_the_demo_has_its_own_store(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("PRODUCER_CORE_STORE", "/mine/production.duckdb")  # must not get simulated data

    assert store_path(None) == Path("/state/producer-core/demo.duckdb")
    assert store_path("broker1.example:9092,broker2:9092").name == "demo-broker1.example.duckdb"
    assert store_path("[::1]:9092").name == "demo-1.duckdb"


@pytest.mark.slow
def test_a_wrong_address_is_an_error_instead_of_an_endless_wait(monkeypatch):
    monkeypatch.setattr("producer_core.simulate.target_cluster._TIMEOUT", 0.5)

    with pytest.raises(BrokerUnreachable):
        real_target("localhost:1")

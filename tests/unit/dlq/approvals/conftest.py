"""Fixtures of the approval tests: a clock that the test moves, a store with it, and a policy file in a folder of the test."""

from __future__ import annotations

import pytest

from producer_core.store import Store
from tests.fixtures.replays import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    with_store = Store.open(tmp_path / "store.duckdb", clock=clock)
    yield with_store
    with_store.close()

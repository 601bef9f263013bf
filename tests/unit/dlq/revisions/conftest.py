"""A store with a clock that the test moves."""

from __future__ import annotations

import pytest

from producer_core.store import Store
from tests.fixtures.replays import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    opened = Store.open(tmp_path / "store.duckdb", clock=clock)
    yield opened
    opened.close()

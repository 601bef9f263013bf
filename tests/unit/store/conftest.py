"""An open store that its own tests may close."""

from __future__ import annotations

import pytest

from producer_core.store import Store


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")

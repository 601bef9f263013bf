"""Dead letters in a store whose clock the test moves."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from producer_core.store import Store
from tests.fixtures.dead_letters import NOW


@pytest.fixture
def now():
    return [NOW + 100]


@pytest.fixture
def dead_letters(tmp_path, now):
    return DeadLetters(Store.open(tmp_path / "store.duckdb"), clock=lambda: now[0])

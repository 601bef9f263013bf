"""A clock that the test moves."""

from __future__ import annotations

import pytest

from producer_core.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()

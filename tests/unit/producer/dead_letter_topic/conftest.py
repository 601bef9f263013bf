"""Fixtures of the tests of dead-letter topics."""

from __future__ import annotations

import pytest

from tests.fixtures.dead_letter_topics import Cluster


@pytest.fixture
def cluster():
    return Cluster()

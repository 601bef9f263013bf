"""Fixtures of the tests of dead-letter topics."""

from __future__ import annotations

import pytest

from producer_core.producer.dead_letter_topic import publishing_client
from tests.fixtures.dead_letter_topics import Cluster


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture(autouse=True)
def single_lookups(monkeypatch):
    """Lookups are not confirmed by a second one, three seconds later: `test_confirmed_lookup.py` has the tests of that."""
    monkeypatch.setattr(publishing_client, "ConfirmedLookup", lambda probe, while_waiting: probe)

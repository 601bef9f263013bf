"""A producer with the records that it sent."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.testing import InMemoryTransport


@pytest.fixture
def sent():
    """A producer, and a function that returns the records of `orders` in its cluster's log."""
    made = []
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport.factory(made)) as producer:
        yield producer, lambda: list(made[0].log["orders"])

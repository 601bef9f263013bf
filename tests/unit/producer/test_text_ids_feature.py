"""A store notes that records have ids as text: versions that cannot read these must not replay its dead letters."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.errors import StoreTooNew
from producer_core.store import required_features
from producer_core.testing import InMemoryTransport


@pytest.mark.parametrize(("settings", "required"), [({}, False), ({"message_id_format": "text"}, True)])
def test_a_producer_with_text_ids_makes_the_store_require_them(store, monkeypatch, settings, required):
    for _ in range(2):
        with ReliableKafkaProducer(
            "localhost:9092", settings, store=store, transport=InMemoryTransport.factory()
        ) as producer:
            producer.send_message("orders", b"1")

    monkeypatch.setattr(required_features, "SUPPORTED", frozenset({"replay_waves"}))
    with store.borrow() as connection:
        found = required_features.refusal(connection)
    assert isinstance(found, StoreTooNew) is required

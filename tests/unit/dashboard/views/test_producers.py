"""Test the list of producers on the overview."""

from __future__ import annotations

import pytest

from producer_core.dashboard import queries
from producer_core.dashboard.html import text_of
from producer_core.dashboard.views import producers
from producer_core.store import Batch
from tests.fixtures.overview import producer

NOW = 0.0


def shown(store):
    return " ".join(text_of(tree) for tree in producers.table(queries.overview(store, "5 min", NOW), NOW))


def test_a_store_without_producers_shows_a_message(store):
    assert shown(store) == "Producers None in the last day."


def test_a_producer_is_listed_with_its_state_queue_and_memory(store):
    store.append(Batch("p", 0, producer=producer(queue_messages=40, queue_limit=100)))

    text = shown(store)

    assert "connected" in text and "host, process 7" in text
    assert "40 of 100" in text and "of 256.0 MiB" in text and "At least once" in text


@pytest.mark.slow
def test_twelve_producers_are_listed_and_the_others_are_counted(store):
    for number in range(15):
        store.append(Batch(f"p-{number}", 0, producer=producer(producer_id=f"p-{number}")))

    assert "3 more in the last day." in shown(store)

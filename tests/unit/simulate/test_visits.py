"""The events of visits to the simulated shop."""

from __future__ import annotations

import dataclasses
from datetime import datetime

import pytest

from producer_core import DataGenerationConfig
from producer_core.simulate.sessions import ShopSessions
from producer_core.simulate.shop import Shop
from producer_core.simulate.visits import UserEvents
from producer_core.simulate.weighted_choice import source
from tests.fixtures.shop import SMALL

NOW = datetime(2024, 11, 1)


def visits_of(*kinds):
    """Generate only events of these types."""
    config = DataGenerationConfig(**SMALL)
    config = dataclasses.replace(config, event_types={name: config.event_types[name] for name in kinds})
    sessions = ShopSessions(config, source(1, "sessions"))
    return UserEvents(config, Shop(config, 1, lambda: NOW), sessions, source(1, "events")), sessions, config


@pytest.mark.parametrize(
    ("kind", "details"),
    [
        ("page_view", {"page_url", "referrer", "duration_seconds"}),
        ("product_view", {"page_url", "referrer", "duration_seconds", "product_id", "category"}),
        ("search", {"search_query", "results_count"}),
        ("add_to_cart", {"product_id", "quantity"}),
        ("logout", set()),
    ],
)
def test_each_type_of_event_has_its_details(kind, details):
    visits, _, _ = visits_of(kind)
    common = {
        "event_id", "user_id", "session_id", "event_type", "timestamp", "device_info", "location",
    }  # fmt: skip

    event = visits.event(NOW)

    assert event["event_type"] == kind
    assert event.keys() - common == details


def test_a_logout_ends_the_visit():
    visits, sessions, _ = visits_of("logout")

    ids = {visits.event(NOW)["session_id"] for _ in range(20)}

    assert (len(ids), sessions.all) == (20, {})


def test_a_page_view_lasts_within_its_range():
    visits, _, config = visits_of("page_view")
    low, high = config.event_types["page_view"]["duration_range"]

    assert all(low <= visits.event(NOW)["duration_seconds"] <= high for _ in range(50))


def test_a_viewed_product_is_one_of_the_shop():
    visits, _, _ = visits_of("product_view")

    for _ in range(20):
        event = visits.event(NOW)
        assert event["page_url"] == f"/products/{event['product_id']}"

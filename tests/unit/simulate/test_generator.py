"""The records of the simulated shop."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta

import pytest

from producer_core import DataGenerationConfig, ECommerceDataGenerator
from producer_core.simulate.generator import SEEDED_NOW
from tests.fixtures.shop import END, SMALL, START


def made(seed):
    shop = ECommerceDataGenerator(DataGenerationConfig(**SMALL), seed=seed)
    return [
        shop.generate_transactions(50),
        shop.generate_user_events(50),
        shop.generate_product_updates(50),
        shop.users,
        shop.products,
        list(shop.user_devices.values()),
    ]


def test_the_same_seed_gives_the_same_records():
    assert made(7) == made(7)
    assert made(7) != made(8)


def test_without_a_seed_two_shops_differ():
    assert made(None)[0] != made(None)[0]


def test_one_kind_of_record_does_not_influence_another(shop):
    other = ECommerceDataGenerator(DataGenerationConfig(**SMALL), seed=1)
    other.generate_product_updates(100)
    other.generate_user_events(100)

    assert shop.generate_transactions(30) == other.generate_transactions(30)


@pytest.mark.slow
def test_the_shop_starts_in_seconds_not_in_minutes():
    shop = ECommerceDataGenerator()  # 10,000 users and 1,000 products

    assert "users" not in vars(shop._shop)  # generated at the first use
    assert len(shop.users) == 10_000 and len(shop.products) == 1000
    assert shop.users[0]["user_id"] == "user_000001" and shop.products[-1]["product_id"] == "prod_001000"


def test_times_increase_and_default_to_the_last_days(shop):
    stamps = [datetime.fromisoformat(record["timestamp"]) for record in shop.generate_transactions(100)]

    assert stamps == sorted(stamps)
    assert SEEDED_NOW - timedelta(days=30) <= stamps[0] < stamps[-1] < SEEDED_NOW


def test_an_end_before_the_start_is_rejected(shop):
    with pytest.raises(ValueError, match="is before the start"):
        shop.generate_user_events(1, END, START)


def test_user_events_have_the_details_of_their_type(shop):
    events = shop.generate_user_events(2000)
    details = {
        "page_view": {"page_url", "referrer", "duration_seconds"},
        "product_view": {"page_url", "referrer", "duration_seconds", "product_id", "category"},
        "search": {"search_query", "results_count"},
        "add_to_cart": {"product_id", "quantity"},
        "remove_from_cart": {"product_id", "quantity"},
    }

    always = {"event_id", "user_id", "session_id", "event_type", "timestamp", "device_info", "location"}
    assert {event["event_type"] for event in events} == set(shop.config.event_types)
    for event in events:
        assert set(event) == always | details.get(event["event_type"], set())


def test_product_updates_are_json_and_build_on_each_other(shop):
    updates = shop.generate_product_updates(2000)
    json.dumps(updates)  # the timestamp used to be a datetime object

    last = {}
    for update in updates:
        assert set(update) == {
            "product_id",
            "update_type",
            "timestamp",
            "old_value",
            "new_value",
            "updated_by",
        }
        key = update["product_id"], update["update_type"]
        assert update["old_value"] == last.get(key, update["old_value"])
        last[key] = update["new_value"]
        if update["update_type"] == "price_change":
            assert 0.79 <= update["new_value"] / update["old_value"] <= 1.21
        assert update["updated_by"] == "system"


def test_a_changed_fraud_rate_applies_to_a_running_generator(shop):
    """The generator used to copy the rate, so a scenario's override had no effect."""
    shop.config.fraud_rate = 1.0
    assert all(record["is_fraud"] for record in shop.generate_transactions(50))

    shop.config.fraud_rate = 0.0
    assert not any(record["is_fraud"] for record in shop.generate_transactions(50))


def test_an_endless_stream_keeps_no_records(shop):
    first = list(itertools.islice(shop.iter_transactions(), 10))

    assert len(first) == 10


def test_values_are_plain_python(shop):
    """Some values used to be numpy strings, which few serialisers accept."""

    def check(value):
        if isinstance(value, dict):
            for name, inner in value.items():
                assert type(name) is str
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)
        else:
            assert type(value) in (str, int, float, bool, type(None))

    for records in (
        shop.generate_transactions(50),
        shop.generate_user_events(50),
        shop.generate_product_updates(20),
    ):
        check(records)
    check([shop.analytics_result(), shop.users[0], shop.products[0]])


def test_faker_is_available_for_custom_fields(shop):
    pytest.importorskip("faker")

    assert shop.faker.name() == ECommerceDataGenerator(seed=1).faker.name()


def test_statistics_have_the_known_keys(shop):
    statistics = shop.get_statistics()

    assert set(statistics) == {
        "total_users", "active_users", "total_products", "active_products", "total_sessions", "active_sessions",
        "categories", "configuration",
    }  # fmt: skip
    assert statistics["total_users"] == 200 and 0 < statistics["active_users"] < 200


@pytest.mark.slow
def test_generating_a_shop_imports_neither_faker_nor_numpy():
    import subprocess
    import sys

    code = "import sys; from producer_core import ECommerceDataGenerator as G; G().generate_transactions(1); print(sorted({'faker', 'numpy', 'pandas'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"

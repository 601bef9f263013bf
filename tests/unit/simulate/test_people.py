"""Customers and devices of the simulated shop."""

from __future__ import annotations

from datetime import datetime

from producer_core import DataGenerationConfig
from producer_core.simulate.people import Devices, People
from producer_core.simulate.places import GeographicPatterns
from producer_core.simulate.weighted_choice import source

NOW = datetime(2024, 11, 1)


def users(count, **settings):
    config, rng = DataGenerationConfig(**settings), source(1, "users")
    people = People(config, rng, GeographicPatterns(vars(config), rng), NOW)
    return [people.user(number) for number in range(1, count + 1)], config


def test_each_customer_has_a_unique_id_and_address():
    found, _ = users(200)

    assert found[0]["user_id"] == "user_000001"
    assert len({one["user_id"] for one in found}) == len({one["email"] for one in found}) == 200


def test_the_values_of_a_customer_agree():
    found, config = users(200)

    for one in found:
        low, high = config.age_ranges[one["age_group"]]
        assert low <= one["age"] <= high
        assert datetime.fromisoformat(one["registration_date"]) < NOW
        assert set(one["preferred_categories"]) <= set(config.categories)
        assert one["user_type"] in {"vip", "new", "regular"}


def test_shares_of_0_and_1_apply_to_all():
    assert {one["user_type"] for one in users(50, vip_user_ratio=1.0)[0]} == {"vip"}
    assert "vip" not in {one["user_type"] for one in users(50, vip_user_ratio=0.0)[0]}
    assert {one["is_active"] for one in users(50, active_user_ratio=0.0)[0]} == {False}


def test_a_device_runs_a_system_of_its_type():
    config = DataGenerationConfig()
    devices = Devices(config, source(1, "devices"))

    for _ in range(100):
        device = devices.device()
        assert device["os"] in config.operating_systems[device["device_type"]]
        assert device["os"] in device["user_agent"] and device["browser"] in device["user_agent"]

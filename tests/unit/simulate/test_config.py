"""The shop's settings."""

import json
from dataclasses import asdict
from datetime import datetime

import pytest

from producer_core import DataGenerationConfig, ECommerceDataGenerator, TemporalPatterns
from producer_core.errors import ConfigError


def test_the_defaults_are_the_documented_ones():
    config = DataGenerationConfig()

    assert (config.total_users, config.total_products) == (10_000, 1000)
    assert (config.active_user_ratio, config.vip_user_ratio, config.fraud_rate) == (0.7, 0.05, 0.001)
    assert (config.base_transaction_rate, config.base_event_rate) == (10_000, 100_000)
    assert (config.peak_hour_multiplier, config.weekend_multiplier, config.holiday_multiplier) == (
        3.0,
        1.5,
        5.0,
    )
    assert len(config.categories) == len(config.price_ranges) == 12
    assert config.regions["Asia"] == {"weight": 0.20, "time_zone_offset": 8}
    assert config.age_distribution == [0.25, 0.35, 0.25, 0.15]
    assert list(config.age_ranges) == ["Gen Z", "Millennial", "Gen X", "Baby Boomer"]
    assert config.event_types["search"] == {"weight": 0.15, "duration_range": (5, 60)}
    assert config.business_hours == {"weekday": (6, 22), "weekend": (8, 23)}
    assert config.validate() == []


def test_two_configs_share_no_state():
    DataGenerationConfig().payment_methods["cash"] = 0.5

    assert "cash" not in DataGenerationConfig().payment_methods


def test_settings_survive_json_with_lists_for_tuples():
    config = DataGenerationConfig(total_users=5, fraud_rate=0.2)

    back = DataGenerationConfig.from_json(config.to_json())

    assert back.total_users == 5 and back.session_duration_minutes == [5, 120]
    assert json.loads(back.to_json()) == json.loads(config.to_json())


def test_the_error_for_a_misspelt_setting_suggests_the_right_one():
    with pytest.raises(ConfigError, match="Did you mean 'fraud_rate'"):
        DataGenerationConfig.from_json('{"fraud_rat": 0.5}')


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_text_that_is_not_a_json_object_is_rejected(text):
    with pytest.raises(ConfigError):
        DataGenerationConfig.from_json(text)


def test_category_weights_have_the_documented_values():
    config = DataGenerationConfig()

    weights = [config.get_category_weight(name) for name in ("Clothing", "Books", "Automotive", "Weapons")]

    assert weights == [0.15, 0.12, 0.08, 0.01]


@pytest.mark.parametrize(
    ("hour", "weekend", "multiplier"),
    [
        (10, False, 3.0),
        (12, False, 1.0),
        (6, False, 1.0),
        (3, False, 0.1),
        (7, True, 0.1),
        (23, True, 1.0),
        (23, False, 0.1),
    ],
)
def test_hourly_multipliers_depend_on_the_hour_and_the_weekend(hour, weekend, multiplier):
    assert DataGenerationConfig().get_hourly_multiplier(hour, weekend) == multiplier


def test_an_event_multiplies_within_its_window_only():
    config = DataGenerationConfig()

    assert config.get_seasonal_multiplier(datetime(2024, 11, 29, 23)) == (
        8.0,
        ["Electronics", "Clothing", "Home & Garden"],
    )
    assert config.get_seasonal_multiplier(datetime(2024, 11, 30, 1)) == (1.0, [])


def test_validate_lists_every_invalid_setting():
    config = DataGenerationConfig(
        total_users=0, total_products=-1, active_user_ratio=2, vip_user_ratio=-1, fraud_rate=1.5
    )
    config.payment_methods = {"cash": 1.2}
    config.device_types = {"desktop": 1.005}  # within the tolerance
    config.age_distribution = [0.9, 0.9]

    assert config.validate() == [
        "Payment method weights sum to more than 1.0",
        "Age distribution weights sum to more than 1.0",
        "Total users must be positive",
        "Total products must be positive",
        "Active user ratio must be between 0 and 1",
        "VIP user ratio must be between 0 and 1",
        "Fraud rate must be between 0 and 1",
    ]


def test_settings_are_plain_data():
    json.dumps(asdict(DataGenerationConfig()))


def test_business_hours_and_ages_can_be_given_by_name():
    """Both forms used to raise a TypeError: "'<=' not supported between instances of 'str' and 'int'"."""
    listed = DataGenerationConfig(total_users=30, total_products=5)
    named = DataGenerationConfig(
        total_users=30,
        total_products=5,
        business_hours={"weekday": {"start": 6, "end": 22}, "weekend": {"start": 8, "end": 23}},
        age_distribution={"Gen Z": 0.25, "Millennial": 0.35, "Gen X": 0.25, "Baby Boomer": 0.15},
    )

    assert named.validate() == []
    assert [named.get_hourly_multiplier(hour) for hour in range(24)] == [
        listed.get_hourly_multiplier(hour) for hour in range(24)
    ]
    groups = [
        [user["age_group"] for user in ECommerceDataGenerator(one, seed=1).users] for one in (listed, named)
    ]
    assert groups[0] == groups[1]
    moment = datetime(2024, 11, 5, 10)
    contexts = [TemporalPatterns(asdict(one)).get_temporal_context(moment) for one in (listed, named)]
    assert contexts[0] == contexts[1]

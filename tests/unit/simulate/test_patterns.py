"""The shop's times, places and frauds."""

from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pytest

from producer_core import (
    DataGenerationConfig,
    FraudPatterns,
    FraudType,
    GeographicLocation,
    GeographicPatterns,
    SeasonalPatterns,
    TemporalPatterns,
)
from producer_core.simulate.weighted_choice import WeightedChoice, source

CONFIG = vars(DataGenerationConfig())
TUESDAY = datetime(2024, 6, 11)
SATURDAY = datetime(2024, 6, 15)


@pytest.mark.parametrize(
    ("moment", "multiplier"),
    [
        (TUESDAY.replace(hour=10), 3.0),
        (TUESDAY.replace(hour=12), 1.0),
        (TUESDAY.replace(hour=3), 0.2),
        (SATURDAY.replace(hour=12), 1.5),
        (SATURDAY.replace(hour=10), 4.5),
    ],
)
def test_hours_and_weekends_change_the_rate(moment, multiplier):
    context = TemporalPatterns(CONFIG).get_temporal_context(moment)

    assert context.business_hour_multiplier == pytest.approx(multiplier)
    assert (context.hour, context.day_of_week) == (moment.hour, moment.weekday())
    assert context.season == "summer" and not context.is_holiday


@pytest.mark.parametrize("day", [datetime(2024, 12, 24), datetime(2025, 1, 1), datetime(2024, 12, 26)])
def test_a_day_around_a_holiday_counts_as_one(day):
    context = TemporalPatterns(CONFIG).get_temporal_context(day)

    assert context.is_holiday and context.seasonal_multiplier == 4.0


def test_realistic_times_are_within_the_given_hours():
    """The range used to be ignored."""
    patterns = TemporalPatterns(CONFIG, Random(1))

    hours = {patterns.generate_realistic_timestamp(TUESDAY, (9, 12)).hour for _ in range(200)}

    assert hours == {9, 10, 11}


def test_realistic_times_prefer_busy_hours():
    patterns = TemporalPatterns(CONFIG, Random(1))

    hours = Counter(patterns.generate_realistic_timestamp(TUESDAY).hour for _ in range(3000))

    assert hours[10] > hours[12] > hours[3]


def test_session_durations_depend_on_the_customer():
    patterns = TemporalPatterns({}, Random(1))

    means = {
        kind: sum(patterns.generate_session_duration(kind) for _ in range(500)) / 500
        for kind in ("vip", "regular", "new")
    }

    assert means["vip"] > means["regular"] > means["new"] >= 1


def test_seasons_multiply_by_category():
    patterns = SeasonalPatterns(CONFIG)
    friday = datetime(2024, 11, 29, 12)

    assert patterns.get_seasonal_multiplier(friday, "Electronics") == 8.0
    assert patterns.get_seasonal_multiplier(friday, "Books") == 4.0
    assert patterns.get_seasonal_multiplier(datetime(2024, 12, 1), "Books") == 1.5
    assert patterns.get_seasonal_multiplier(datetime(2024, 3, 1), "Books") == 1.0
    assert patterns.apply_seasonal_boost("Electronics", 0.15, friday) == 1.0
    assert patterns.apply_seasonal_boost("Books", 0.1, datetime(2024, 3, 1)) == pytest.approx(0.1)


def test_distances_between_cities_are_correct():
    def place(latitude, longitude):
        return GeographicLocation(latitude, longitude, "", "", "", "", "")

    patterns = GeographicPatterns(CONFIG)
    paris, london = place(48.8566, 2.3522), place(51.5074, -0.1278)

    assert patterns.calculate_distance(paris, london) == pytest.approx(343.6, abs=1)
    assert not patterns.is_location_anomaly(paris, london)
    assert patterns.is_location_anomaly(paris, london, threshold_km=300)
    assert patterns.calculate_distance(place(0, 0), place(0, 180)) == pytest.approx(20015, abs=1)


def test_regions_are_drawn_by_weight():
    patterns = GeographicPatterns(CONFIG, Random(2))

    regions = Counter(patterns.generate_location().region for _ in range(2000))

    assert regions["North America"] > regions["Europe"] > regions["Asia"] > regions["Others"] > 0
    assert patterns.generate_location("Asia").timezone == "UTC+8"


def test_anomalies_have_the_documented_values():
    patterns = FraudPatterns(CONFIG, Random(3))
    home = GeographicPatterns(CONFIG, Random(1)).generate_location("Europe")
    start = datetime(2024, 6, 1)

    attack = patterns.generate_velocity_attack("user_000001", start)

    assert 5 <= len(attack) <= 15
    for record in attack:
        assert set(record) == {"user_id", "timestamp", "amount", "fraud_type", "fraud_indicator"}
        assert start <= record["timestamp"] <= start + timedelta(seconds=300)
        assert 100 <= record["amount"] <= 500
    assert all(patterns.generate_location_anomaly(home).region != "Europe" for _ in range(50))
    for _ in range(100):
        amount = patterns.generate_amount_anomaly(100)
        assert 500 <= amount <= 2000 or 0.01 <= amount <= 1.0
        assert patterns.generate_time_anomaly("UTC+1").hour in (2, 3, 4)
        assert patterns.generate_pattern_anomaly(["Books", "Clothing"]) not in ("Books", "Clothing")
    assert set(patterns.generate_device_anomaly()) == {
        "device_id",
        "device_type",
        "os",
        "browser",
        "first_seen",
    }


def test_the_fraud_rate_is_read_at_each_draw():
    config = {"fraud_rate": 0.0, "fraud_patterns": {"time_anomaly": 1.0}}
    patterns = FraudPatterns(config)
    assert not patterns.should_inject_fraud()

    config["fraud_rate"] = 1.0

    assert patterns.should_inject_fraud()
    assert patterns.select_fraud_type() is FraudType.TIME_ANOMALY


def test_weights_need_not_sum_to_one():
    drawn = Counter(WeightedChoice({"a": 3, "b": 1}).draw(rng) for rng in [Random(1)] for _ in range(1000))

    assert 650 < drawn["a"] < 850
    assert WeightedChoice({"only": 0.0}).draw(Random(1)) == "only"


def test_a_source_is_repeatable_by_seed_and_purpose():
    assert source(1, "x").random() == source(1, "x").random() != source(1, "y").random()
    assert source(None, "x").random() != source(None, "x").random()

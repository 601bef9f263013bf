"""Hours, weekends, holidays and seasons change the rate."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from random import Random

import pytest

from producer_core import SeasonalPatterns, TemporalPatterns
from tests.fixtures.shop import CONFIG

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

"""Places: distances and regions."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from producer_core import GeographicLocation, GeographicPatterns
from tests.fixtures.shop import CONFIG


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

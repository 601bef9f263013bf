"""Regions and cities of customers, and the distance between two locations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from producer_core.simulate.weighted_choice import WeightedChoice

_EARTH_RADIUS = 6371.0  # km
_NOISE = 0.1  # degrees


class City(NamedTuple):
    """A city; customers' coordinates are its center with a little noise."""

    name: str
    state: str
    country: str
    latitude: float
    longitude: float


_CITIES = {
    "North America": (
        City("New York", "New York", "United States", 40.7128, -74.0060),
        City("Los Angeles", "California", "United States", 34.0522, -118.2437),
        City("Chicago", "Illinois", "United States", 41.8781, -87.6298),
        City("Houston", "Texas", "United States", 29.7604, -95.3698),
        City("Seattle", "Washington", "United States", 47.6062, -122.3321),
        City("Toronto", "Ontario", "Canada", 43.6532, -79.3832),
        City("Mexico City", "Mexico City", "Mexico", 19.4326, -99.1332),
    ),
    "Europe": (
        City("London", "England", "United Kingdom", 51.5074, -0.1278),
        City("Paris", "Île-de-France", "France", 48.8566, 2.3522),
        City("Berlin", "Berlin", "Germany", 52.5200, 13.4050),
        City("Madrid", "Madrid", "Spain", 40.4168, -3.7038),
        City("Rome", "Lazio", "Italy", 41.9028, 12.4964),
        City("Amsterdam", "North Holland", "Netherlands", 52.3676, 4.9041),
    ),
    "Asia": (
        City("Tokyo", "Tokyo", "Japan", 35.6762, 139.6503),
        City("Shanghai", "Shanghai", "China", 31.2304, 121.4737),
        City("Mumbai", "Maharashtra", "India", 19.0760, 72.8777),
        City("Seoul", "Seoul", "South Korea", 37.5665, 126.9780),
        City("Singapore", "Singapore", "Singapore", 1.3521, 103.8198),
        City("Bangkok", "Bangkok", "Thailand", 13.7563, 100.5018),
    ),
    "Others": (
        City("Sydney", "New South Wales", "Australia", -33.8688, 151.2093),
        City("São Paulo", "São Paulo", "Brazil", -23.5505, -46.6333),
        City("Cape Town", "Western Cape", "South Africa", -33.9249, 18.4241),
        City("Cairo", "Cairo", "Egypt", 30.0444, 31.2357),
    ),
}
_OFFSETS = {"North America": -5, "Europe": 1, "Asia": 8, "Others": 0}


@dataclass(frozen=True)
class GeographicLocation:
    """A location; latitude and longitude in degrees."""

    latitude: float
    longitude: float
    country: str
    state: str
    city: str
    timezone: str
    region: str


class GeographicPatterns:
    """Draws locations by the weights of their regions."""

    def __init__(self, config: Mapping[str, Any] | None = None, rng: Random | None = None) -> None:
        self.config = config or {}
        self._rng = rng or Random()

    def generate_location(self, region: str | None = None) -> GeographicLocation:
        chosen = region or self._region()
        city = self._rng.choice(_CITIES.get(chosen, _CITIES["Others"]))
        return GeographicLocation(
            latitude=round(city.latitude + self._rng.uniform(-_NOISE, _NOISE), 6),
            longitude=round(city.longitude + self._rng.uniform(-_NOISE, _NOISE), 6),
            country=city.country,
            state=city.state,
            city=city.name,
            timezone=f"UTC{self._offset(chosen):+d}",
            region=chosen,
        )

    def calculate_distance(self, loc1: GeographicLocation, loc2: GeographicLocation) -> float:
        """Return the distance along the surface in kilometres, by the haversine formula."""
        first, second = math.radians(loc1.latitude), math.radians(loc2.latitude)
        east = math.radians(loc2.longitude - loc1.longitude)
        half = (
            math.sin((second - first) / 2) ** 2 + math.cos(first) * math.cos(second) * math.sin(east / 2) ** 2
        )
        return 2 * _EARTH_RADIUS * math.asin(min(1.0, math.sqrt(half)))

    def is_location_anomaly(
        self, user_location: GeographicLocation, new_location: GeographicLocation, threshold_km: float = 500
    ) -> bool:
        return self.calculate_distance(user_location, new_location) > threshold_km

    def other_regions(self, region: str) -> list[str]:
        return [name for name in (self.config.get("regions") or _CITIES) if name != region] or ["Others"]

    def _region(self) -> str:
        regions = self.config.get("regions") or {name: {"weight": 1.0} for name in _CITIES}
        weights: dict[str, float] = {name: about["weight"] for name, about in regions.items()}
        return WeightedChoice(weights).draw(self._rng)

    def _offset(self, region: str) -> int:
        about = (self.config.get("regions") or {}).get(region, {})
        return int(about.get("time_zone_offset", _OFFSETS.get(region, 0)))

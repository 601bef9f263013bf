"""The shop's busy times: hours, weekends, holidays and seasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

from producer_core.simulate.config import PEAK_HOURS, event_start, opening_hours

_HOLIDAYS = ((1, 1), (2, 14), (3, 17), (5, 5), (7, 4), (10, 31), (11, 11), (11, 28), (12, 25), (12, 31))
_SEASONS = {12: "winter", 1: "winter", 2: "winter", 3: "spring", 4: "spring", 5: "spring",
            6: "summer", 7: "summer", 8: "summer", 9: "autumn", 10: "autumn", 11: "autumn"}  # fmt: skip
_SESSIONS = {"vip": (45, 15), "new": (15, 8), "regular": (25, 12)}
_TRENDS = {
    "winter": ["Electronics", "Toys & Games", "Jewelry & Accessories"],
    "spring": ["Home & Garden", "Clothing", "Beauty & Personal Care"],
    "summer": ["Sports & Outdoors", "Automotive", "Food & Beverages"],
    "autumn": ["Books", "Clothing", "Electronics"],
}


@dataclass(frozen=True)
class TemporalContext:
    """The temporal factors of a moment."""

    timestamp: datetime
    hour: int
    day_of_week: int
    is_weekend: bool
    is_holiday: bool
    season: str
    business_hour_multiplier: float
    seasonal_multiplier: float


class TemporalPatterns:
    """Rate multipliers for hours of the day and days of the year."""

    def __init__(self, config: Mapping[str, Any] | None = None, rng: Random | None = None) -> None:
        self.config = config or {}
        self._rng = rng or Random()

    def get_temporal_context(self, timestamp: datetime) -> TemporalContext:
        weekend = timestamp.weekday() >= 5
        holiday = _near_holiday(timestamp.date())
        return TemporalContext(
            timestamp=timestamp,
            hour=timestamp.hour,
            day_of_week=timestamp.weekday(),
            is_weekend=weekend,
            is_holiday=holiday,
            season=_SEASONS[timestamp.month],
            business_hour_multiplier=self._business(timestamp.hour, weekend),
            seasonal_multiplier=4.0 if holiday else 1.0,
        )

    def generate_realistic_timestamp(
        self, base_time: datetime | None = None, hours_range: tuple[int, int] = (0, 24)
    ) -> datetime:
        """Return a time on the day of `base_time`, from the hour `hours_range[0]` to before `hours_range[1]`.

        Busy hours are drawn more often.
        """
        day = base_time or datetime.now()
        first, last = hours_range
        if not 0 <= first < last <= 24:
            raise ValueError(f"hours_range must be within (0, 24), first below last, not {hours_range}.")
        weekend = day.weekday() >= 5
        hours = range(first, last)
        hour = self._rng.choices(hours, [self._business(hour, weekend) for hour in hours])[0]
        return day.replace(
            hour=hour,
            minute=self._rng.randrange(60),
            second=self._rng.randrange(60),
            microsecond=self._rng.randrange(1_000_000),
        )

    def generate_session_duration(self, user_type: str = "regular") -> int:
        """Return a duration in minutes, at least 1."""
        mean, spread = _SESSIONS.get(user_type, _SESSIONS["regular"])
        return max(1, int(self._rng.gauss(mean, spread)))

    def _business(self, hour: int, weekend: bool) -> float:
        hours = self.config.get("business_hours", {})
        opens, closes = opening_hours(
            hours.get("weekend" if weekend else "weekday", (8, 23) if weekend else (6, 22))
        )
        if not opens <= hour <= closes:
            factor = 0.2
        else:
            factor = float(self.config.get("peak_hour_multiplier", 3.0)) if hour in PEAK_HOURS else 1.0
        return factor * (float(self.config.get("weekend_multiplier", 1.5)) if weekend else 1.0)


class SeasonalPatterns:
    """Demand for categories by the time of the year."""

    def __init__(self, config: Mapping[str, Any] | None = None, rng: Random | None = None) -> None:
        self.config = config or {}
        self._rng = rng or Random()

    def get_seasonal_multiplier(self, timestamp: datetime, category: str) -> float:
        """Return an event's multiplier, half of it for other categories; without an event, the month's."""
        for event in self.config.get("seasonal_events", {}).values():
            start = event_start(event["date"])
            if start <= timestamp.replace(tzinfo=None) < start + timedelta(hours=event["duration_hours"]):
                multiplier = float(event["multiplier"])
                return multiplier if category in event["categories"] else multiplier / 2
        return {11: 1.5, 12: 1.5, 8: 1.3, 9: 1.3, 6: 1.2, 7: 1.2}.get(timestamp.month, 1.0)

    def get_trending_categories(self, timestamp: datetime) -> list[str]:
        return list(_TRENDS[_SEASONS[timestamp.month]])

    def apply_seasonal_boost(self, category: str, base_probability: float, timestamp: datetime) -> float:
        """Return the probability times the season's multiplier, and times 1.3 for a trending category; at most 1."""
        boosted = base_probability * self.get_seasonal_multiplier(timestamp, category)
        if category in _TRENDS[_SEASONS[timestamp.month]]:
            boosted *= 1.3
        return min(boosted, 1.0)


def _near_holiday(day: date) -> bool:
    """Return whether the day is within one day of a holiday, including across New Year."""
    near = (day - timedelta(days=1), day, day + timedelta(days=1))
    return any((other.month, other.day) in _HOLIDAYS for other in near)

"""Settings of the simulated shop."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import date, datetime, time, timedelta
from typing import Any

from producer_core.errors import ConfigError

PEAK_HOURS = (10, 11, 14, 15, 19, 20, 21)

_CATEGORIES: dict[str, tuple[float, float]] = {
    "Electronics": (50, 2000),
    "Clothing": (15, 300),
    "Books": (5, 50),
    "Home & Garden": (10, 500),
    "Sports & Outdoors": (20, 800),
    "Beauty & Personal Care": (8, 150),
    "Automotive": (25, 1500),
    "Health & Wellness": (15, 200),
    "Toys & Games": (10, 250),
    "Food & Beverages": (5, 100),
    "Jewelry & Accessories": (20, 5000),
    "Pet Supplies": (10, 150),
}
_CATEGORY_WEIGHTS = {"Electronics": 0.15, "Clothing": 0.15, "Books": 0.12, "Home & Garden": 0.12}


def _regions() -> dict[str, dict[str, float]]:
    return {
        "North America": {"weight": 0.45, "time_zone_offset": -5},
        "Europe": {"weight": 0.30, "time_zone_offset": 1},
        "Asia": {"weight": 0.20, "time_zone_offset": 8},
        "Others": {"weight": 0.05, "time_zone_offset": 0},
    }


def _fraud_patterns() -> dict[str, float]:
    return {
        "velocity_attack": 0.3,
        "location_anomaly": 0.2,
        "amount_anomaly": 0.2,
        "time_anomaly": 0.15,
        "device_anomaly": 0.1,
        "pattern_anomaly": 0.05,
    }


def _seasonal_events() -> dict[str, dict[str, Any]]:
    def event(day: str, multiplier: float, hours: int, *categories: str) -> dict[str, Any]:
        return {
            "date": day,
            "multiplier": multiplier,
            "duration_hours": hours,
            "categories": list(categories),
        }

    return {
        "Black Friday": event("2024-11-29", 8.0, 24, "Electronics", "Clothing", "Home & Garden"),
        "Christmas": event("2024-12-25", 6.0, 72, "Toys & Games", "Electronics", "Jewelry & Accessories"),
        "Back to School": event("2024-08-15", 3.0, 168, "Books", "Electronics", "Clothing"),
        "Valentine's Day": event("2024-02-14", 4.0, 48, "Jewelry & Accessories", "Beauty & Personal Care"),
    }


def _event_types() -> dict[str, dict[str, Any]]:
    table = {
        "page_view": (0.40, (10, 300)),
        "product_view": (0.25, (30, 600)),
        "search": (0.15, (5, 60)),
        "add_to_cart": (0.08, (5, 30)),
        "remove_from_cart": (0.03, (5, 15)),
        "checkout_start": (0.04, (30, 300)),
        "checkout_complete": (0.02, (60, 180)),
        "login": (0.02, (5, 30)),
        "logout": (0.01, (1, 5)),
    }
    return {name: {"weight": weight, "duration_range": span} for name, (weight, span) in table.items()}


@dataclass
class DataGenerationConfig:
    """Configures the size of the shop, its customers, and when, where and what they buy. Changes apply to a running
    generator.

    The weights of a table need not sum to 1; `validate` lists invalid settings.
    """

    total_users: int = 10_000
    active_user_ratio: float = 0.7
    vip_user_ratio: float = 0.05
    total_products: int = 1000
    categories: list[str] = field(default_factory=lambda: list(_CATEGORIES))
    base_transaction_rate: int = 10_000  # per hour
    base_event_rate: int = 100_000  # per hour
    peak_hour_multiplier: float = 3.0
    weekend_multiplier: float = 1.5
    holiday_multiplier: float = 5.0
    session_duration_minutes: tuple[int, int] = (5, 120)
    events_per_session: tuple[int, int] = (3, 50)
    regions: dict[str, dict[str, float]] = field(default_factory=_regions)
    fraud_rate: float = 0.001
    fraud_patterns: dict[str, float] = field(default_factory=_fraud_patterns)
    seasonal_events: dict[str, dict[str, Any]] = field(default_factory=_seasonal_events)
    business_hours: dict[str, tuple[int, int] | dict[str, int]] = field(
        default_factory=lambda: {"weekday": (6, 22), "weekend": (8, 23)}
    )
    payment_methods: dict[str, float] = field(
        default_factory=lambda: {
            "credit_card": 0.45,
            "debit_card": 0.25,
            "paypal": 0.15,
            "apple_pay": 0.08,
            "google_pay": 0.05,
            "bank_transfer": 0.02,
        }
    )
    device_types: dict[str, float] = field(
        default_factory=lambda: {"desktop": 0.35, "mobile": 0.50, "tablet": 0.15}
    )
    operating_systems: dict[str, dict[str, float]] = field(
        default_factory=lambda: {
            "desktop": {"Windows": 0.65, "macOS": 0.30, "Linux": 0.05},
            "mobile": {"Android": 0.70, "iOS": 0.30},
            "tablet": {"iOS": 0.60, "Android": 0.40},
        }
    )
    browsers: dict[str, float] = field(
        default_factory=lambda: {
            "Chrome": 0.65,
            "Safari": 0.20,
            "Firefox": 0.08,
            "Edge": 0.05,
            "Opera": 0.02,
        }
    )
    price_ranges: dict[str, tuple[float, float]] = field(default_factory=lambda: dict(_CATEGORIES))
    age_ranges: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {
            "Gen Z": (18, 25),
            "Millennial": (26, 41),
            "Gen X": (42, 57),
            "Baby Boomer": (58, 76),
        }
    )
    age_distribution: list[float] | dict[str, float] = field(  # in the order of age_ranges, or by their names
        default_factory=lambda: [0.25, 0.35, 0.25, 0.15]
    )
    marketing_channels: dict[str, float] = field(
        default_factory=lambda: {
            "organic_search": 0.35,
            "paid_search": 0.20,
            "social_media": 0.15,
            "email_marketing": 0.12,
            "direct_traffic": 0.10,
            "referral": 0.05,
            "display_ads": 0.03,
        }
    )
    event_types: dict[str, dict[str, Any]] = field(default_factory=_event_types)

    @classmethod
    def from_json(cls, json_str: str) -> DataGenerationConfig:
        """Return a config with these fields, and defaults for the others; ConfigError suggests the nearest name."""
        try:
            given = json.loads(json_str)
        except json.JSONDecodeError as error:
            raise ConfigError(f"The shop's settings are not JSON: {error}.") from error
        if not isinstance(given, dict):
            raise ConfigError(
                "The shop's settings must be one JSON object.", fix="See `producer-core simulate config`."
            )
        known = [item.name for item in fields(cls)]
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                raise ConfigError(
                    f"Unknown shop setting {name!r}.", fix=f"Did you mean {close[0]!r}?" if close else ""
                )
        return cls(**given)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, default=str)

    @property
    def age_weights(self) -> dict[str, float]:
        """Return each age group's weight, from either form of `age_distribution`."""
        if isinstance(self.age_distribution, dict):
            return self.age_distribution
        return dict(zip(self.age_ranges, self.age_distribution, strict=False))

    def get_category_weight(self, category: str) -> float:
        if category not in self.categories:
            return 0.01
        return _CATEGORY_WEIGHTS.get(category, 0.08)

    def get_hourly_multiplier(self, hour: int, is_weekend: bool = False) -> float:
        opens, closes = opening_hours(self.business_hours["weekend" if is_weekend else "weekday"])
        if not opens <= hour <= closes:
            return 0.1
        return self.peak_hour_multiplier if hour in PEAK_HOURS else 1.0

    def get_seasonal_multiplier(self, date: datetime) -> tuple[float, list[str]]:
        """Return the multiplier and categories of the event at this time, else (1.0, [])."""
        for event in self.seasonal_events.values():
            start = event_start(event["date"])
            if start <= date.replace(tzinfo=None) < start + timedelta(hours=event["duration_hours"]):
                return float(event["multiplier"]), list(event["categories"])
        return 1.0, []

    def validate(self) -> list[str]:
        """Return a sentence for each invalid setting; an empty list when all are valid."""
        found = [
            f"{name} weights sum to more than 1.0"
            for name, table in self._weight_tables()
            if sum(table) > 1.01
        ]
        for name, number in (("users", self.total_users), ("products", self.total_products)):
            if number <= 0:
                found.append(f"Total {name} must be positive")
        for name, share in (
            ("Active user ratio", self.active_user_ratio),
            ("VIP user ratio", self.vip_user_ratio),
            ("Fraud rate", self.fraud_rate),
        ):
            if not 0 <= share <= 1:
                found.append(f"{name} must be between 0 and 1")
        return found

    def _weight_tables(self) -> Iterable[tuple[str, Iterable[float]]]:
        yield "Payment method", self.payment_methods.values()
        yield "Device type", self.device_types.values()
        yield "Age distribution", self.age_weights.values()
        yield "Marketing channel", self.marketing_channels.values()
        yield "Fraud pattern", self.fraud_patterns.values()


def opening_hours(hours: Any) -> tuple[int, int]:
    """Return the first and the last business hour of a pair or of `{"start": …, "end": …}`."""
    first, last = (hours["start"], hours["end"]) if isinstance(hours, dict) else hours
    return first, last


def event_start(day: Any) -> datetime:
    """Return the midnight at which a seasonal event starts, from its `date`: text, date or datetime."""
    if isinstance(day, datetime):
        return day
    if isinstance(day, date):
        return datetime.combine(day, time())
    return datetime.fromisoformat(str(day))

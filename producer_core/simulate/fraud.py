"""Decide which purchases are frauds, and generate their anomalies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from random import Random
from typing import Any

from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.places import GeographicLocation, GeographicPatterns
from producer_core.simulate.weighted_choice import WeightedChoice


class FraudType(Enum):
    """The anomaly of a fraudulent purchase."""

    VELOCITY_ATTACK = "velocity_attack"
    LOCATION_ANOMALY = "location_anomaly"
    AMOUNT_ANOMALY = "amount_anomaly"
    TIME_ANOMALY = "time_anomaly"
    DEVICE_ANOMALY = "device_anomaly"
    PATTERN_ANOMALY = "pattern_anomaly"


class FraudPatterns:
    """Reads `fraud_rate` and `fraud_patterns` at each draw, so that a changed rate applies at once."""

    def __init__(self, config: Mapping[str, Any] | None = None, rng: Random | None = None) -> None:
        self.config = vars(DataGenerationConfig()) if config is None else config
        self._rng = rng or Random()
        self._places = GeographicPatterns(self.config, self._rng)

    def should_inject_fraud(self) -> bool:
        return self._rng.random() < float(self.config.get("fraud_rate", 0.001))

    def select_fraud_type(self) -> FraudType:
        weights = self.config.get("fraud_patterns") or {kind.value: 1.0 for kind in FraudType}
        return FraudType(WeightedChoice(weights).draw(self._rng))

    def generate_velocity_attack(self, user_id: str, base_timestamp: datetime) -> list[dict[str, Any]]:
        """Return 5 to 15 purchases of one user within 300 seconds."""
        return [
            {
                "user_id": user_id,
                "timestamp": base_timestamp + timedelta(seconds=self._rng.uniform(0, 300)),
                "amount": round(self._rng.uniform(100, 500), 2),
                "fraud_type": FraudType.VELOCITY_ATTACK.value,
                "fraud_indicator": "rapid_purchases",
            }
            for _ in range(self._rng.randint(5, 15))
        ]

    def generate_location_anomaly(self, user_location: GeographicLocation) -> GeographicLocation:
        """Return a location in another region."""
        region = self._rng.choice(self._places.other_regions(user_location.region))
        return self._places.generate_location(region)

    def generate_amount_anomaly(self, user_avg_amount: float) -> float:
        """Return an amount far above the user's average (70%), or a tiny one that tests a stolen card."""
        if self._rng.random() < 0.7:
            return user_avg_amount * self._rng.uniform(5, 20)
        return self._rng.uniform(0.01, 1.0)

    def generate_time_anomaly(self, user_timezone: str, day: datetime | None = None) -> datetime:
        """Return a time between 2 and 5 a.m. in the user's time zone, on `day` (today by default)."""
        return (day or datetime.now()).replace(
            hour=self._rng.randint(2, 4), minute=self._rng.randrange(60), second=self._rng.randrange(60)
        )

    def generate_device_anomaly(self, now: datetime | None = None) -> dict[str, Any]:
        """Return a device that the user has never used."""
        return {
            "device_id": f"device_{self._rng.getrandbits(48):012x}",
            "device_type": "unknown",
            "os": "unknown",
            "browser": "unknown",
            "first_seen": (now or datetime.now()).isoformat(),
        }

    def generate_pattern_anomaly(self, user_categories: Sequence[str]) -> str:
        """Return a category from which the user has never bought."""
        every = self.config.get("categories") or ["Electronics"]
        return str(self._rng.choice([name for name in every if name not in user_categories] or list(every)))

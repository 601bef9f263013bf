"""The shop's customers and their devices."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from random import Random
from typing import Any

from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.places import GeographicPatterns
from producer_core.simulate.weighted_choice import WeightedChoice, words

Record = dict[str, Any]

_FIRST = words(
    "Amara Ana Ben Carlos Chen Daniel Elena Emma Fatima George Grace Hana Hugo Ines Ivan Jack James Jin Julia "
    "Kofi Lara Leila Liam Lucas Maria Marta Mei Mia Noah Nora Oliver Omar Paul Priya Rosa Sam Sofia Tara Tom Yuki"
)
_LAST = words(
    "Adams Ahmed Baker Brown Chen Clark Cohen Costa Davis Diaz Evans Fischer Garcia Gupta Haddad Ito Jansen "
    "Johnson Kim Kowalski Lee Lopez Martin Meyer Miller Moreau Mwangi Novak Okafor Patel Park Rossi Santos Schmidt "
    "Silva Singh Smith Tanaka Thomas Wang Weber Williams Wilson Young"
)
_SCREENS = {
    "desktop": ("1920x1080", "2560x1440", "1366x768", "3840x2160"),
    "mobile": ("390x844", "360x800", "414x896", "393x873"),
    "tablet": ("820x1180", "768x1024", "800x1280"),
}


class People:
    """Generates customers one by one; the weight tables are built once."""

    def __init__(
        self, config: DataGenerationConfig, rng: Random, places: GeographicPatterns, now: datetime
    ) -> None:
        self._config = config
        self._rng = rng
        self._places = places
        self._now = now
        self._ages = WeightedChoice(config.age_weights)
        self._channels = WeightedChoice(config.marketing_channels)

    def user(self, number: int) -> Record:
        rng = self._rng
        first, last = rng.choice(_FIRST), rng.choice(_LAST)
        age_group = self._ages.draw(rng)
        low, high = self._config.age_ranges[age_group]
        registered = self._now - timedelta(days=rng.randint(1, 1095), seconds=rng.randrange(86400))
        return {
            "user_id": f"user_{number:06d}",
            "email": f"{first}.{last}{number}@example.com".lower(),
            "name": f"{first} {last}",
            "age": rng.randint(low, high),
            "age_group": age_group,
            "gender": rng.choice(("female", "male", "other")),
            "location": asdict(self._places.generate_location()),
            "user_type": self._type(),
            "registration_date": registered.isoformat(),
            "marketing_channel": self._channels.draw(rng),
            "is_active": rng.random() < self._config.active_user_ratio,
            "preferred_categories": rng.sample(
                self._config.categories, min(rng.randint(2, 5), len(self._config.categories))
            ),
            "avg_order_value": round(rng.uniform(50, 500), 2),
            "total_orders": rng.randint(0, 100),
            "created_at": registered.isoformat(),
        }

    def _type(self) -> str:
        chance = self._rng.random()
        if chance < self._config.vip_user_ratio:
            return "vip"
        return "new" if chance < self._config.vip_user_ratio + 0.15 else "regular"


class Devices:
    """Generates devices with consistent properties."""

    def __init__(self, config: DataGenerationConfig, rng: Random) -> None:
        self._rng = rng
        self._types = WeightedChoice(config.device_types)
        self._systems = {kind: WeightedChoice(table) for kind, table in config.operating_systems.items()}
        self._browsers = WeightedChoice(config.browsers)

    def device(self) -> Record:
        rng = self._rng
        kind = self._types.draw(rng)
        system = self._systems[kind].draw(rng) if kind in self._systems else "unknown"
        browser = self._browsers.draw(rng)
        return {
            "device_id": f"device_{rng.getrandbits(48):012x}",
            "device_type": kind,
            "os": system,
            "browser": browser,
            "screen_resolution": rng.choice(_SCREENS.get(kind, _SCREENS["desktop"])),
            "user_agent": f"Mozilla/5.0 ({system}) {browser}/{rng.randint(100, 140)}.0",
        }

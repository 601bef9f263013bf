"""The shop: its customers and products, and the locations, devices and purchases of its customers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from random import Random
from typing import Any

from producer_core.simulate.catalogue import Catalogue
from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.people import Devices, People
from producer_core.simulate.places import GeographicPatterns
from producer_core.simulate.times import SeasonalPatterns
from producer_core.simulate.weighted_choice import WeightedChoice, source

Record = dict[str, Any]

_PREFERENCE = 3.0
"""Factor by which a customer prefers their categories."""
_HISTORY = 20
"""Categories of past purchases kept per customer."""


class Shop:
    """Generates customers and products at the first use; all growing state is bounded by their number."""

    def __init__(self, config: DataGenerationConfig, seed: int | None, clock: Callable[[], datetime]) -> None:
        self._config = config
        self._seed = seed
        self._clock = clock
        self._seasons = SeasonalPatterns(vars(config), source(seed, "fashions"))
        self.purchase_history: dict[str, deque[str]] = {}
        self.locations: dict[str, Record] = {}
        self.devices: dict[str, Record] = {}
        # Weights of the categories by hour: computed once per hour, because every event needs them.
        self._season = lru_cache(maxsize=1024)(self._weights)

    @cached_property
    def users(self) -> list[Record]:
        rng = source(self._seed, "users")
        people = People(self._config, rng, GeographicPatterns(vars(self._config), rng), self._clock())
        return [people.user(number) for number in range(1, self._config.total_users + 1)]

    @cached_property
    def products(self) -> list[Record]:
        catalogue = Catalogue(self._config, source(self._seed, "products"), self._clock())
        return [catalogue.product(number) for number in range(1, self._config.total_products + 1)]

    def prepare(self) -> None:
        for make in (lambda: self.users, lambda: self._shelves):
            make()

    def active_user(self, rng: Random) -> Record:
        """Return an active customer, if three tries find one."""
        for _ in range(3):
            user = rng.choice(self.users)
            if user["is_active"]:
                break
        return user

    def product_for(self, user: Record, at: datetime, rng: Random) -> Record:
        """Return a product from a category that this customer and the season favor."""
        hour = at.replace(minute=0, second=0, microsecond=0, tzinfo=None)
        liked = user["preferred_categories"]
        weights = [
            (name, weight * _PREFERENCE if name in liked else weight) for name, weight in self._season(hour)
        ]
        return self.product_of(WeightedChoice(weights).draw(rng), rng)

    def product_of(self, category: str, rng: Random) -> Record:
        """Return a product of the category, or any product when it has none."""
        return rng.choice(self._shelves.get(category) or self.products)

    def remember(self, user: Record, categories: Sequence[str]) -> None:
        history = self.purchase_history.get(user["user_id"])
        if history is None:
            history = self.purchase_history[user["user_id"]] = deque(maxlen=_HISTORY)
        history.extend(categories)

    def location_of(self, user: Record) -> Record:
        """Return the customer's usual location."""
        return self.locations.setdefault(user["user_id"], user["location"])

    def device_of(self, user: Record) -> Record:
        """Return the customer's device, which depends on the seed and the customer only."""
        name = user["user_id"]
        if name not in self.devices:
            self.devices[name] = Devices(self._config, source(self._seed, f"device of {name}")).device()
        return self.devices[name]

    @cached_property
    def _shelves(self) -> dict[str, list[Record]]:
        shelves: dict[str, list[Record]] = {}
        for product in self.products:
            shelves.setdefault(product["category"], []).append(product)
        return shelves

    def _weights(self, hour: datetime) -> list[tuple[str, float]]:
        return [
            (
                name,
                self._seasons.apply_seasonal_boost(name, self._config.get_category_weight(name), hour),
            )
            for name in self._shelves
        ]

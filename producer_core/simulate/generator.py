"""Generate the simulated shop's records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import Any

from producer_core.simulate import weighted_choice
from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.patterns import (
    FraudPatterns,
    GeographicPatterns,
    SeasonalPatterns,
    TemporalPatterns,
)
from producer_core.simulate.purchases import Purchases
from producer_core.simulate.sessions import ShopSession, ShopSessions
from producer_core.simulate.shop import Shop
from producer_core.simulate.visits import UserEvents

Record = dict[str, Any]

SEEDED_NOW = datetime(2025, 1, 1)
"""The current time of a seeded generator, so that two runs with one seed give the same records."""

_KINDS = {"transactions": 30, "user events": 7, "product updates": 7}
"""Kinds of records, and the days over which they are spread when no times are given."""

_UPDATES = ("price_change", "stock_update", "description_update", "status_change")
_METRICS = ("revenue", "conversion_rate", "user_activity", "product_performance")


class ECommerceDataGenerator:
    """Generates purchases, visits and product changes of a shop, one by one (`iter_…`) or as lists (`generate_…`).

    With a `seed` the same calls give the same records; without given times they are before SEEDED_NOW. Each kind of
    record draws from a random source of its own, so that the kinds do not influence each other. Users and products
    are generated at the first use, in a fraction of a second.
    """

    def __init__(
        self,
        config: DataGenerationConfig | None = None,
        *,
        seed: int | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.config = config or DataGenerationConfig()
        self.seed = seed
        self._clock = clock or (datetime.now if seed is None else lambda: SEEDED_NOW)
        live = vars(self.config)  # a view, so that changed settings apply at once
        self.temporal_patterns = TemporalPatterns(live, self._source("times"))
        self.geographic_patterns = GeographicPatterns(live, self._source("places"))
        self.fraud_patterns = FraudPatterns(live, self._source("frauds"))
        self.seasonal_patterns = SeasonalPatterns(live, self._source("seasons"))
        self._shop = Shop(self.config, seed, self._clock)
        self._sessions = ShopSessions(self.config, self._source("sessions"))
        self._purchases = Purchases(
            self.config, self._shop, self.geographic_patterns, self._source("purchases")
        )
        self._user_events = UserEvents(self.config, self._shop, self._sessions, self._source("events"))
        self._changes = self._source("product updates")
        self._changed: dict[str, Record] = {}  # products after their updates
        self._results = self._source("analytics")
        self._times = {name: self._source(f"times of {name}") for name in _KINDS}

    # the shop

    @property
    def users(self) -> list[Record]:
        return self._shop.users

    @property
    def products(self) -> list[Record]:
        return self._shop.products

    @property
    def sessions(self) -> dict[str, ShopSession]:
        """Return the open visits by id."""
        return self._sessions.all

    @property
    def user_purchase_history(self) -> dict[str, deque[str]]:
        """Return the categories of each customer's last purchases."""
        return self._shop.purchase_history

    @property
    def user_locations(self) -> dict[str, Record]:
        return self._shop.locations

    @property
    def user_devices(self) -> dict[str, Record]:
        return self._shop.devices

    @cached_property
    def faker(self) -> Any:
        """Return a Faker with this generator's seed for your own fields, or None when faker is not installed."""
        if find_spec("faker") is None:
            return None
        made = import_module("faker").Faker()
        if self.seed is not None:
            made.seed_instance(self.seed)
        return made

    def prepare(self) -> None:
        """Generate users and products now, so that the first record does not wait for them."""
        self._shop.prepare()

    # purchases

    def generate_transactions(
        self, count: int, start_time: datetime | None = None, end_time: datetime | None = None
    ) -> list[Record]:
        return list(self.iter_transactions(count, start_time, end_time))

    def iter_transactions(
        self, count: int | None = None, start_time: datetime | None = None, end_time: datetime | None = None
    ) -> Iterator[Record]:
        """Yield purchases between the two times (the last 30 days by default); without a count, endlessly."""
        for at in self._moments("transactions", count, start_time, end_time):
            yield self.transaction(at)

    def transaction(self, at: datetime | None = None, *, fraud: bool | None = None) -> Record:
        """Return one purchase; `fraud` decides whether it is fraudulent, otherwise the fraud rate does."""
        return self._purchases.transaction(at or self._clock(), fraud=fraud)

    # visits

    def generate_user_events(
        self, count: int, start_time: datetime | None = None, end_time: datetime | None = None
    ) -> list[Record]:
        return list(self.iter_user_events(count, start_time, end_time))

    def iter_user_events(
        self, count: int | None = None, start_time: datetime | None = None, end_time: datetime | None = None
    ) -> Iterator[Record]:
        """Yield events of visits between the two times (the last 7 days by default), in the order of time."""
        for at in self._moments("user events", count, start_time, end_time):
            yield self.user_event(at)

    def user_event(self, at: datetime | None = None) -> Record:
        return self._user_events.event(at or self._clock())

    # changes and results

    def generate_product_updates(self, count: int) -> list[Record]:
        return list(self.iter_product_updates(count))

    def iter_product_updates(
        self, count: int | None = None, start_time: datetime | None = None, end_time: datetime | None = None
    ) -> Iterator[Record]:
        for at in self._moments("product updates", count, start_time, end_time):
            yield self.product_update(at)

    def product_update(self, at: datetime | None = None) -> Record:
        """Return a change of a product; the next change of this kind starts from it. Prices change by up to a fifth.

        Purchases keep the original product, so that the two kinds of records do not depend on each other.
        """
        rng, product = self._changes, self._changes.choice(self.products)
        kind = rng.choice(_UPDATES)
        state = self._changed.setdefault(product["product_id"], dict(product))
        field, new = _change(rng, kind, state)
        old, state[field] = state[field], new
        return {
            "product_id": product["product_id"],
            "update_type": kind,
            "timestamp": (at or self._clock()).isoformat(),
            "old_value": old,
            "new_value": new,
            "updated_by": "system",
        }

    def analytics_result(self, at: datetime | None = None) -> Record:
        rng = self._results
        return {
            "result_id": weighted_choice.identifier(rng),
            "metric_type": rng.choice(_METRICS),
            "timestamp": (at or self._clock()).isoformat(),
            "time_period": "hourly",
            "value": round(rng.uniform(100, 10_000), 2),
            "metadata": {
                "calculation_method": "aggregate",
                "data_points": rng.randint(100, 10_000),
                "confidence_level": round(rng.uniform(0.8, 0.99), 3),
            },
        }

    # statistics

    def get_statistics(self) -> dict[str, Any]:
        return {
            "total_users": len(self.users),
            "active_users": sum(user["is_active"] for user in self.users),
            "total_products": len(self.products),
            "active_products": sum(product["is_active"] for product in self.products),
            "total_sessions": self._sessions.opened,
            "active_sessions": len(self.sessions),
            "categories": len({product["category"] for product in self.products}),
            "configuration": asdict(self.config),
        }

    def _source(self, name: str) -> Random:
        return weighted_choice.source(self.seed, name)

    def _moments(
        self, kind: str, count: int | None, start: datetime | None, end: datetime | None
    ) -> Iterator[datetime]:
        """Yield `count` times in order, or random times without end."""
        last = end or self._clock()
        first = start or last - timedelta(days=_KINDS[kind])
        if last < first:
            raise ValueError(f"The end ({last}) is before the start ({first}).")
        rng, span = self._times[kind], last - first
        if count is None:
            while True:
                yield first + span * rng.random()
        for number in range(count):
            yield first + span * ((number + rng.random()) / count)


def _change(rng: Random, kind: str, product: Record) -> tuple[str, Any]:
    """Return the changed field and its new value."""
    if kind == "price_change":
        return "price", round(max(0.01, product["price"] * rng.uniform(0.8, 1.2)), 2)
    if kind == "stock_update":
        return "stock_quantity", rng.randint(0, 1000)
    if kind == "description_update":
        return "description", f"{product['name']}, now in edition {rng.randint(2, 99)}."
    return "is_active", not product["is_active"]

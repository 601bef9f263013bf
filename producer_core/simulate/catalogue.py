"""The products of the simulated shop."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.weighted_choice import WeightedChoice, words

Record = dict[str, Any]

_BRANDS = words("Acorn Brightside Cobalt Driftwood Ember Fjord Granite Harbor Indigo Juniper Keystone Lumen")
_KINDS = words("Classic Compact Deluxe Essential Grand Light Plus Pro Pure Smart Solo Travel")
_TAGS = words("bestseller eco-friendly gift limited new sale")


class Catalogue:
    """Generates products one by one."""

    def __init__(self, config: DataGenerationConfig, rng: Random, now: datetime) -> None:
        self._config = config
        self._rng = rng
        self._now = now
        self._categories = WeightedChoice(
            {name: config.get_category_weight(name) for name in config.categories}
        )

    def product(self, number: int) -> Record:
        rng = self._rng
        category = self._categories.draw(rng)
        low, high = self._config.price_ranges.get(category, (10, 100))
        price = round(rng.uniform(low, high), 2)
        brand, kind = rng.choice(_BRANDS), rng.choice(_KINDS)
        return {
            "product_id": f"prod_{number:06d}",
            "name": f"{brand} {kind} {category.split(' ')[0]} {number}",
            "category": category,
            "price": price,
            "cost": round(price * rng.uniform(0.4, 0.7), 2),
            "brand": brand,
            "description": f"The {kind.lower()} choice in {category.lower()}, by {brand}.",
            "weight_kg": round(rng.uniform(0.1, 20), 2),
            "dimensions": {side: round(rng.uniform(2, 80), 1) for side in ("length", "width", "height")},
            "sku": f"{brand[:3].upper()}-{number:06d}",
            "stock_quantity": rng.randint(0, 1000),
            "rating": round(rng.uniform(2.5, 5.0), 1),
            "review_count": rng.randint(0, 5000),
            "created_at": (self._now - timedelta(days=rng.randint(1, 730))).isoformat(),
            "is_active": rng.random() < 0.95,
            "tags": rng.sample(_TAGS, rng.randint(1, 3)),
        }

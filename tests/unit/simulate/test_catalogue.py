"""Products of the simulated shop."""

from __future__ import annotations

from datetime import datetime

from producer_core import DataGenerationConfig
from producer_core.simulate.catalogue import Catalogue
from producer_core.simulate.weighted_choice import source

NOW = datetime(2024, 11, 1)


def products(config, count=100, seed=1):
    catalogue = Catalogue(config, source(seed, "products"), NOW)
    return [catalogue.product(number) for number in range(1, count + 1)]


def test_the_values_of_a_product_agree():
    config = DataGenerationConfig()

    for number, product in enumerate(products(config), start=1):
        low, high = config.price_ranges[product["category"]]
        assert product["product_id"] == f"prod_{number:06d}"
        assert product["sku"] == f"{product['brand'][:3].upper()}-{number:06d}"
        assert low <= product["price"] <= high
        assert 0 < product["cost"] < product["price"]
        assert datetime.fromisoformat(product["created_at"]) < NOW


def test_a_category_without_a_price_range_costs_10_to_100():
    config = DataGenerationConfig(categories=["Antiques"], price_ranges={})

    assert all(10 <= product["price"] <= 100 for product in products(config))


def test_the_same_seed_gives_the_same_products():
    config = DataGenerationConfig()

    assert products(config) == products(config)
    assert products(config) != products(config, seed=2)

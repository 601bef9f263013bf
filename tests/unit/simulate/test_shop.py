"""Customers and products."""

from __future__ import annotations

from producer_core import DataGenerationConfig, ECommerceDataGenerator


def test_users_and_products_have_the_known_keys(shop):
    assert set(shop.users[0]) == {
        "user_id", "email", "name", "age", "age_group", "gender", "location", "user_type", "registration_date",
        "marketing_channel", "is_active", "preferred_categories", "avg_order_value", "total_orders", "created_at",
    }  # fmt: skip
    assert set(shop.products[0]) == {
        "product_id", "name", "category", "price", "cost", "brand", "description", "weight_kg", "dimensions", "sku",
        "stock_quantity", "rating", "review_count", "created_at", "is_active", "tags",
    }  # fmt: skip
    for user in shop.users:
        low, high = shop.config.age_ranges[user["age_group"]]
        assert low <= user["age"] <= high
        assert 2 <= len(user["preferred_categories"]) <= 5


def test_customers_buy_more_from_preferred_categories(shop):
    liked = bought = 0
    users = {user["user_id"]: user for user in shop.users}
    for record in shop.generate_transactions(500):
        for item in record["products"]:
            bought += 1
            liked += item["category"] in users[record["user_id"]]["preferred_categories"]

    assert liked / bought > 0.45  # 2 to 5 of 12 categories: 0.29 by chance


def test_a_shop_with_few_categories_and_products_works():
    config = DataGenerationConfig(total_users=1, total_products=1, categories=["Books"])

    assert len(ECommerceDataGenerator(config, seed=1).generate_transactions(5)) == 5

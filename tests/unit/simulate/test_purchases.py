"""Purchases and frauds, and the alert of a fraud."""

from __future__ import annotations

from datetime import datetime

import pytest

from producer_core.simulate.purchases import fraud_alert
from tests.fixtures.shop import END, START


def test_transactions_have_the_known_keys_and_add_up(shop):
    for record in shop.generate_transactions(200, START, END):
        assert set(record) == {
            "transaction_id", "user_id", "timestamp", "products", "subtotal", "tax_amount", "total_amount",
            "payment_method", "location", "device_info", "marketing_attribution", "is_fraud", "fraud_score",
            "fraud_indicators",
        }  # fmt: skip
        assert set(record["location"]) == {
            "latitude",
            "longitude",
            "country",
            "state",
            "city",
            "timezone",
            "region",
        }
        assert set(record["device_info"]) >= {
            "device_id", "device_type", "os", "browser", "screen_resolution", "user_agent",
        }  # fmt: skip
        assert set(record["marketing_attribution"]) == {"channel", "campaign_id"}
        assert 1 <= len(record["products"]) <= 5
        assert set(record["products"][0]) == {"product_id", "name", "category", "price", "quantity"}
        assert record["total_amount"] == pytest.approx(record["subtotal"] + record["tax_amount"])
        assert record["tax_amount"] == pytest.approx(0.08 * record["subtotal"], abs=0.01)
        assert (0.8 <= record["fraud_score"] <= 1.0) if record["is_fraud"] else record["fraud_score"] <= 0.3
        assert START <= datetime.fromisoformat(record["timestamp"]) < END


def test_each_fraud_has_its_indicators(shop):
    keys = {
        "velocity_attack": set(),
        "location_anomaly": {"anomaly_location", "distance_km"},
        "amount_anomaly": {"anomaly_amount", "user_avg_amount"},
        "time_anomaly": {"anomaly_time"},
        "device_anomaly": {"anomaly_device"},
        "pattern_anomaly": {"anomaly_category"},
    }
    seen = set()
    for _ in range(500):
        record = shop.transaction(START, fraud=True)
        indicators = record["fraud_indicators"]
        seen.add(kind := indicators["fraud_type"])
        assert set(indicators) == {"fraud_type"} | keys[kind]
        if kind == "location_anomaly":
            assert record["location"] == indicators["anomaly_location"]
        if kind == "amount_anomaly":
            assert record["total_amount"] == indicators["anomaly_amount"]

    assert seen == set(keys)


def test_a_fraud_alert_describes_its_purchase(shop):
    record = shop.transaction(START, fraud=True)

    alert = fraud_alert(record)

    assert alert["alert_id"] == f"fraud_{record['transaction_id']}"
    assert alert["severity"] == ("high" if record["fraud_score"] > 0.9 else "medium")
    assert set(alert) == {
        "alert_id", "transaction_id", "user_id", "alert_type", "fraud_score", "fraud_indicators", "timestamp",
        "severity", "status", "assigned_to",
    }  # fmt: skip

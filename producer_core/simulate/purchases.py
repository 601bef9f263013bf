"""Generate purchases, legitimate and fraudulent."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from random import Random
from typing import Any

from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.fraud import FraudPatterns, FraudType
from producer_core.simulate.places import GeographicLocation, GeographicPatterns
from producer_core.simulate.shop import Shop
from producer_core.simulate.weighted_choice import WeightedChoice, identifier

Record = dict[str, Any]

_TAX = 0.08
_BASKETS = WeightedChoice({1: 0.6, 2: 0.2, 3: 0.1, 4: 0.07, 5: 0.03})


class Purchases:
    """Generates one purchase at a time from one random source."""

    def __init__(
        self, config: DataGenerationConfig, shop: Shop, places: GeographicPatterns, rng: Random
    ) -> None:
        self._config = config
        self._shop = shop
        self._places = places
        self._frauds = FraudPatterns(vars(config), rng)
        self._rng = rng
        self._payments = WeightedChoice(config.payment_methods)
        self._channels = WeightedChoice(config.marketing_channels)

    def transaction(self, at: datetime, *, fraud: bool | None = None) -> Record:
        rng = self._rng
        user = self._shop.active_user(rng)
        is_fraud = self._frauds.should_inject_fraud() if fraud is None else fraud
        products = self._basket(user, at)
        record = {
            "transaction_id": identifier(rng),
            "user_id": user["user_id"],
            "timestamp": at.isoformat(),
            "products": products,
            **_amounts(sum(item["price"] * item["quantity"] for item in products)),
            "payment_method": self._payments.draw(rng),
            "location": dict(self._shop.location_of(user)),
            "device_info": dict(self._shop.device_of(user)),
            "marketing_attribution": {
                "channel": self._channels.draw(rng),
                "campaign_id": f"campaign_{rng.randint(1, 50):03d}",
            },
            "is_fraud": is_fraud,
            "fraud_score": round(rng.uniform(0.8, 1.0) if is_fraud else rng.uniform(0.0, 0.3), 4),
            "fraud_indicators": {},
        }
        if is_fraud:
            self._make_fraudulent(record, user, at)
        self._shop.remember(user, [item["category"] for item in record["products"]])
        return record

    def _basket(self, user: Record, at: datetime) -> list[Record]:
        rng = self._rng
        return [_line(self._shop.product_for(user, at, rng), rng) for _ in range(_BASKETS.draw(rng))]

    def _make_fraudulent(self, record: Record, user: Record, at: datetime) -> None:
        """Turn a purchase into a fraud, and record its indicators."""
        kind = self._frauds.select_fraud_type()
        found: Record = {"fraud_type": kind.value}
        match kind:
            case FraudType.LOCATION_ANOMALY:
                usual = GeographicLocation(**user["location"])
                place = self._frauds.generate_location_anomaly(usual)
                record["location"] = asdict(place)
                found["anomaly_location"] = asdict(place)
                found["distance_km"] = round(self._places.calculate_distance(usual, place), 1)
            case FraudType.AMOUNT_ANOMALY:
                average = user["avg_order_value"]
                record.update(_amounts(self._frauds.generate_amount_anomaly(average)))
                found["anomaly_amount"] = record["total_amount"]
                found["user_avg_amount"] = average
            case FraudType.TIME_ANOMALY:
                night = self._frauds.generate_time_anomaly(user["location"]["timezone"], at)
                found["anomaly_time"] = night.isoformat()
            case FraudType.DEVICE_ANOMALY:
                device = self._frauds.generate_device_anomaly(at)
                record["device_info"].update(device)
                found["anomaly_device"] = device
            case FraudType.PATTERN_ANOMALY:
                category = self._frauds.generate_pattern_anomaly(user["preferred_categories"])
                found["anomaly_category"] = category
                record["products"] = [_line(self._shop.product_of(category, self._rng), self._rng)]
                record.update(_amounts(sum(item["price"] * item["quantity"] for item in record["products"])))
        record["fraud_indicators"] = found


def fraud_alert(transaction: Record) -> Record:
    """Return the alert for a fraudulent purchase."""
    score = transaction["fraud_score"]
    return {
        "alert_id": f"fraud_{transaction['transaction_id']}",
        "transaction_id": transaction["transaction_id"],
        "user_id": transaction["user_id"],
        "alert_type": "fraud_detected",
        "fraud_score": score,
        "fraud_indicators": transaction["fraud_indicators"],
        "timestamp": transaction["timestamp"],
        "severity": "high" if score > 0.9 else "medium",
        "status": "new",
        "assigned_to": None,
    }


def _line(product: Record, rng: Random) -> Record:
    return {
        "product_id": product["product_id"],
        "name": product["name"],
        "category": product["category"],
        "price": product["price"],
        "quantity": rng.randint(1, 3),
    }


def _amounts(subtotal: float) -> Record:
    net = round(subtotal, 2)
    tax = round(net * _TAX, 2)
    return {"subtotal": net, "tax_amount": tax, "total_amount": round(net + tax, 2)}

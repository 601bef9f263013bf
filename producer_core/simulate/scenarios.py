"""The scenarios of the simulator."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Scenario(TypedDict):
    """The traffic multiplier of a scenario and its topics."""

    description: str
    rate_multiplier: float
    topics: list[str]
    fraud_rate_override: NotRequired[float]


def scenarios() -> dict[str, Scenario]:
    """Return the four scenarios by name, as a new dictionary that may be changed."""
    return {
        "normal_traffic": {
            "description": "An ordinary day: purchases, visits and product changes.",
            "rate_multiplier": 1.0,
            "topics": ["transactions", "user-events", "product-updates"],
        },
        "peak_traffic": {
            "description": "A sale: three times the traffic, plus analytics.",
            "rate_multiplier": 3.0,
            "topics": ["transactions", "user-events", "product-updates", "analytics-results"],
        },
        "fraud_testing": {
            "description": "One purchase in ten is fraudulent and raises an alert.",
            "rate_multiplier": 0.5,
            "topics": ["transactions", "fraud-alerts"],
            "fraud_rate_override": 0.1,
        },
        "maintenance_mode": {
            "description": "Very low traffic: few visits and product changes.",
            "rate_multiplier": 0.1,
            "topics": ["user-events", "product-updates"],
        },
    }

"""Test the order of alerts."""

from __future__ import annotations

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.dashboard import queries
from producer_core.dashboard.queries.alerts import alerts as alerts_page
from tests.fixtures.overview import shop

NOW = 0.0


def test_an_alert_precedes_the_alerts_that_follow_from_it(store):
    shop(store)
    fired = [
        alert("connection_lost", "p", NOW - 90, reason="refused"),
        alert("high_error_rate", "p", NOW - 20, value=0.3, threshold=0.05),
        alert("transactions_failing", "p", NOW - 10, text="a transaction failed"),
        alert("weak_replication", "orders", NOW - 5, text="orders has one replica"),
    ]
    AlertLog(store).record([AlertChange("fired", one) for one in fired])
    rules = [row["rule"] for row in queries.overview(store, "15 min", NOW).alerts]
    assert rules == ["connection_lost", "transactions_failing", "high_error_rate", "weak_replication"]
    everywhere = [item.rule for item in alerts_page(store, queries.View(), NOW).firing]
    assert everywhere == rules

"""Test the order of alerts."""

from __future__ import annotations

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.dashboard import queries
from producer_core.dashboard.queries.alerts import alerts as alerts_page
from producer_core.dashboard.queries.urgency import explained, urgency, urgency_of
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


def rank(rule="slow_delivery", severity="warning", started_at=100.0, **changes):
    known = {"acknowledged": False, "suppressed": False, "cleared": False}
    return urgency(rule, severity, started_at, **{**known, **changes})


def test_severity_precedes_age_and_an_unknown_severity_comes_last():
    in_order = [
        rank(severity="critical", started_at=1.0),
        rank(severity="warning", started_at=9.0),
        rank(severity="warning", started_at=5.0),
        rank(severity="info", started_at=9.0),
        rank(severity="loud", started_at=9.0),
    ]

    assert in_order == sorted(in_order)


def test_handled_alerts_come_after_all_others():
    in_order = [
        rank(severity="info"),
        rank(severity="critical", cleared=True),
        rank(severity="critical", acknowledged=True),
        rank(severity="critical", suppressed=True),
    ]

    assert in_order == sorted(in_order)


def test_a_row_is_suppressed_by_a_silence_or_by_another_alert():
    row = {
        "rule": "slow_delivery", "severity": "warning", "started_at": 100.0, "acknowledged_by": None, "silenced": False,
        "muted_by": None, "since": None,
    }  # fmt: skip

    assert urgency_of(row) == rank()
    assert urgency_of({**row, "silenced": True}) == rank(suppressed=True)
    assert urgency_of({**row, "muted_by": "connection_lost fires"}) == rank(suppressed=True)
    assert urgency_of({**row, "acknowledged_by": "ada"}) == rank(acknowledged=True)
    assert urgency_of({**row, "since": 0.0}) == rank(cleared=True)


def test_a_lost_connection_explains_the_failures_that_follow_from_it():
    assert "high_error_rate" in explained("connection_lost")
    assert explained("a rule of the user") == frozenset()

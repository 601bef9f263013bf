"""Alerts that a producer reports: their start, their end, and their number."""

from __future__ import annotations

import pytest

from producer_core.alerts import END_CONDITIONS, RULES, ReportedAlerts
from producer_core.events import Notice
from tests.fixtures.alerts import firing


def notice(kind, at=1.0, **details):
    return Notice(kind, "critical", f"{kind} happened", at, details)


def test_every_notice_that_becomes_an_alert_has_a_rule_that_shows_its_text():
    for kind in END_CONDITIONS:
        assert "{text}" in RULES[kind].text, kind
        for other in END_CONDITIONS[kind].by:
            assert other != kind


def test_an_alert_from_a_notice_ends_after_its_time_and_counts_repetitions():
    alerts = ReportedAlerts()
    alerts.notice(notice("fatal_error", 10.0))
    alerts.notice(notice("fatal_error", 300.0))

    (item,) = alerts.firing("p-1", 800.0)
    assert (item.subject, item.value, item.started_at, item.text) == (
        "p-1", 2, 10.0, "fatal_error happened",
    )  # fmt: skip
    assert firing(alerts, 901.0) == []


def test_informational_notices_are_not_alerts():
    alerts = ReportedAlerts()
    for kind in ("connected", "store_available", "nothing_to_lose", "duplicate_confirmed", "dedup_restored"):
        alerts.notice(notice(kind))

    assert firing(alerts) == []


def test_a_suspected_loss_ends_with_its_finding():
    alerts = ReportedAlerts()
    alerts.notice(notice("loss_suspected", subject="orders"))
    before = firing(alerts)
    alerts.notice(notice("producer_desynchronised", subject="orders/3", ends=[("loss_suspected", "orders")]))

    assert before == [("loss_suspected", "orders")]
    assert firing(alerts) == [("producer_desynchronised", "orders/3")]


def test_a_recovery_notice_ends_the_alert_of_its_subject_only():
    alerts = ReportedAlerts()
    alerts.notice(notice("transactions_failing"))
    alerts.notice(notice("standing_unknown", subject="orders/1"))
    alerts.notice(notice("standing_unknown", subject="orders/2"))
    alerts.notice(notice("transactions_recovered"))
    alerts.notice(notice("retention_removed", subject="orders/1"))

    assert firing(alerts) == [("standing_unknown", "orders/2"), ("retention_removed", "orders/1")]


def test_only_lasting_alerts_outlive_their_producer():
    alerts = ReportedAlerts()
    for kind in END_CONDITIONS:
        alerts.notice(notice(kind, subject="s"))

    assert {rule for rule, _ in firing(alerts, closed=True)} == {
        kind for kind in RULES if RULES[kind].lasting
    }
    assert firing(alerts, 10**9, closed=True)


@pytest.mark.parametrize(
    "kind", ["acknowledged_lost", "topic_recreated", "journal_damaged", "store_replaced"]
)
def test_an_alert_of_lost_data_outlives_its_producer_and_does_not_expire(kind):
    reported = ReportedAlerts()
    reported.notice(Notice(kind, "critical", "x", 0.0))

    assert [item.rule for item in reported.firing("p", 1e6, closed=True)] == [kind]


def test_reported_alerts_are_bounded_and_keep_lasting_ones():
    alerts = ReportedAlerts()
    alerts.notice(notice("acknowledged_lost", subject="orders/0"))
    for number in range(3000):
        alerts.notice(notice("retention_removed", subject=f"orders/{number}"))

    assert len(firing(alerts)) == 1000
    assert ("acknowledged_lost", "orders/0") in firing(alerts)


def test_the_alert_of_an_open_circuit_ends_when_that_circuit_closes():
    alerts = ReportedAlerts()
    text = "The circuit of topic orders is open: 20 of 20 deliveries failed. New messages are refused."
    alerts.notice(Notice("circuit_opened", "critical", text, 1.0, {"topic": "orders", "subject": "orders"}))
    alerts.notice(Notice("circuit_opened", "critical", "The circuit of the cluster is open: down.", 2.0))
    assert [(item.rule, item.subject, item.severity) for item in alerts.firing("p-1", 9_999.0)] == [
        ("circuit_opened", "orders", "critical"),
        ("circuit_opened", "p-1", "critical"),
    ]

    alerts.notice(Notice("circuit_closed", "info", "closed", 3.0))
    (left,) = alerts.firing("p-1", 9_999.0)
    assert (left.subject, left.text) == ("orders", text)
    alerts.notice(Notice("circuit_closed", "info", "closed", 4.0, {"subject": "orders"}))

    assert alerts.firing("p-1", 9_999.0) == []

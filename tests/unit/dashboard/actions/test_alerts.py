"""Test silences and test notifications, and their audit."""

from __future__ import annotations

from producer_core.alerts import AlertLog
from producer_core.dashboard.actions import alerts as actions_alerts
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.sessions import LoginSessions
from tests.fixtures.alert_pages import audited
from tests.fixtures.alerts import receiver
from tests.support import eventually


def test_a_silence_and_its_end_are_audited(store):
    done = actions_alerts.silence(store, "error_budget_fast", "payments", 3600, " upgrade ")
    assert done.ok and "silenced for payments" in done.text
    (silence,) = AlertLog(store).silences()
    assert (silence.subject, silence.why, silence.who) == ("payments", "upgrade", access.user())

    assert actions_alerts.unsilence(store, "error_budget_fast", "payments").ok
    assert not actions_alerts.unsilence(store, "error_budget_fast", "payments").ok
    assert [action for action, _ in audited(store)] == ["unsilence", "unsilence", "silence"]


def test_read_only_users_cannot_silence_or_test(store):
    access.set_guard(access.AccessGuard(AccessRules(read_only=("*",)), LoginSessions(1.0)))

    assert not actions_alerts.silence(store, "error_budget_fast", "", 60, "").ok
    assert not actions_alerts.send_test(store, "webhook").ok
    assert AlertLog(store).silences() == []
    assert all(outcome.startswith("Refused") for _, outcome in audited(store))


def test_a_test_alert_is_sent_in_the_background_and_its_result_is_kept(store, monkeypatch):
    with receiver() as hook:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        hook.hanging = True
        assert actions_alerts.send_test(store, "webhook").ok  # returns although the receiver does not respond
        assert actions_alerts.route_tests().result(store, "webhook") == (True, None)
        assert not actions_alerts.send_test(store, "webhook").ok
        hook.hang.set()
        _, first = eventually(
            lambda: (found := actions_alerts.route_tests().result(store, "webhook"))[1] and found
        )
        assert not first.ok and first.text.startswith("NOT accepted")

        hook.hanging = False
        actions_alerts.send_test(store, "webhook")
        eventually(lambda: (last := actions_alerts.route_tests().result(store, "webhook")[1]) and last.ok)
    assert hook.received == [
        ("TestAlert", "producer_core", "firing"),
        ("TestAlert", "producer_core", "resolved"),
    ]
    assert audited(store)[0] == ("test_route", "sent a test")

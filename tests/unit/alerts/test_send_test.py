"""A test alert fires and is resolved at once."""

from __future__ import annotations

from producer_core.alerts import RuleSet
from producer_core.alerts.notification import RouteResult
from producer_core.alerts.send_test import send_test_alert


class Receiver:
    name = "pager"

    def __init__(self, *results):
        self.results, self.received = list(results), []

    def send(self, notification):
        self.received.append(notification)
        return self.results.pop(0)


def send(*results):
    receiver = Receiver(*results)
    return send_test_alert(receiver, RuleSet(), store="shop", who="ann"), receiver.received


def test_the_receiver_gets_a_firing_and_a_resolved_notification():
    result, received = send(RouteResult(True, "200 OK"), RouteResult(True, "200 OK"))

    assert result.accepted and result.text == "200 OK; resolved: 200 OK"
    assert [one.status for one in received] == ["firing", "resolved"]
    assert "Test alert sent by ann." in str(received[0].payload)


def test_a_refused_test_alert_is_not_resolved():
    result, received = send(RouteResult(False, "403 Forbidden"))

    assert (result.accepted, result.text, len(received)) == (False, "403 Forbidden", 1)


def test_a_refused_resolved_notification_fails_the_test():
    result, _ = send(RouteResult(True, "200 OK"), RouteResult(False, "500"))

    assert not result.accepted

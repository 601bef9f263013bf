"""A test alert for a route, which fires and is resolved. It is not stored."""

from __future__ import annotations

import time
from dataclasses import replace

from producer_core.alerts.alert_state import Alert, resolved
from producer_core.alerts.notification import RouteResult
from producer_core.alerts.payload import notification
from producer_core.alerts.routes import Route
from producer_core.alerts.rule_set import RuleSet


def send_test_alert(route: Route, rule_set: RuleSet, *, store: str, who: str) -> RouteResult:
    """Return the receiver's response; `accepted` if it accepted both the firing and the resolved notification.

    The alert ends at once, or after the route's `test_seconds`.
    """
    now = time.time()
    item = Alert(
        "TestAlert", "info", "producer_core", None, None, f"Test alert sent by {who}.",
        "No action needed: this route receives alerts.", now, now, fired_at=now,
    )  # fmt: skip
    begun = route.send(notification([item], "firing", receiver=route.name, rule_set=rule_set, store=store))
    if not begun.accepted:
        return begun
    end = now + getattr(route, "test_seconds", 1.0)
    ended = route.send(
        notification([resolved(item, end)], "resolved", receiver=route.name, rule_set=rule_set, store=store)
    )
    return replace(begun, accepted=ended.accepted, text=f"{begun.text}; resolved: {ended.text}")

"""A trial: one test alert over a route, that fires and is resolved right after; it is written down nowhere."""

from __future__ import annotations

import time
from dataclasses import replace

from producer_core.alerts.alert_state import Alert, resolved
from producer_core.alerts.notification import RouteResult
from producer_core.alerts.payload import notification
from producer_core.alerts.routes import Route
from producer_core.alerts.rule_set import RuleSet


def send_test_alert(route: Route, book: RuleSet, *, store: str, who: str) -> RouteResult:
    """What the receiver says; `taken` where it took the beginning and the end."""
    now = time.time()
    item = Alert(
        "TestAlert", "info", "producer_core", None, None, f"A test, sent by {who}.",
        "Nothing to do: alerts arrive here.", now, now, fired_at=now,
    )  # fmt: skip
    begun = route.tell(notification([item], "firing", receiver=route.name, book=book, store=store))
    if not begun.taken:
        return begun
    ended = route.tell(
        notification([resolved(item, now + 1)], "resolved", receiver=route.name, book=book, store=store)
    )
    return replace(begun, taken=ended.taken, text=f"{begun.text}; resolved: {ended.text}")

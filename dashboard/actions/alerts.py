"""Act on alerts: acknowledge, silence, end a silence, and send a test alert."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from producer_core._internal.join_names import join_names
from producer_core._internal.plural import plural
from producer_core.alerts import AlertLog, rule_set_of
from producer_core.alerts.routes import routes_of
from producer_core.alerts.send_test import send_test_alert
from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.errors import ProducerError
from producer_core.store import Store


def acknowledge(store: Store, *alert_ids: str, who: str | None = None, origin: str = ORIGIN) -> ActionResult:
    """Acknowledge alerts under the user's name."""

    def act(name: str) -> ActionResult:
        changed = AlertLog(store).acknowledge_all(alert_ids, who=name, origin=origin)
        if len(alert_ids) > 1:
            return ActionResult(changed > 0, f"{plural(changed, 'alert')} acknowledged.")
        return ActionResult(
            changed > 0, "Acknowledged." if changed else "The alert was already acknowledged."
        )

    selection = {"alert": join_names(alert_ids, most=5)}
    return attempt(store, "acknowledge", selection, act, who=who, origin=origin)


def silence(
    store: Store,
    rule: str,
    subject: str,
    seconds: float,
    why: str,
    *,
    who: str | None = None,
    origin: str = ORIGIN,
) -> ActionResult:
    """Silence a rule for a number of seconds, for one subject or, if it is empty, for all subjects."""

    def act(name: str) -> ActionResult:
        until = time.time() + seconds
        try:
            AlertLog(store).silence(rule, subject, until=until, who=name, why=why.strip(), origin=origin)
        except ValueError as error:
            return ActionResult(False, str(error))
        return ActionResult(
            True, f"{rule} is silenced{f' for {subject}' if subject else ''}: no notifications are sent."
        )

    selection = {"rule": rule, "subject": subject}
    return attempt(store, "silence", selection, act, who=who, origin=origin)


def unsilence(
    store: Store, rule: str, subject: str, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """End a silence now. Notifications of firing alerts follow within seconds."""

    def act(name: str) -> ActionResult:
        ended = AlertLog(store).unsilence(rule, subject, who=name, origin=origin)
        return ActionResult(
            ended > 0, f"{rule} is no longer silenced." if ended else "The silence had already ended."
        )

    selection = {"rule": rule, "subject": subject}
    return attempt(store, "unsilence", selection, act, who=who, origin=origin)


# test alerts


class RouteTests:
    """Send test alerts in the background, so that no page waits for a slow receiver. Safe from any thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, "alert-test")
        self._lock = threading.Lock()  # guards the next field
        self._tests: dict[tuple[str, str], Future[ActionResult]] = {}

    def begin(self, store: Store, name: str, who: str) -> bool:
        """Start a test of a route; return False if one is already in progress."""
        key = str(store.path), name
        with self._lock:
            if key in self._tests and not self._tests[key].done():
                return False
            self._tests[key] = self._threads.submit(_run_test, store, name, who)
            return True

    def result(self, store: Store, name: str) -> tuple[bool, ActionResult | None]:
        """Return whether a test is in progress, and the result of the last one that finished."""
        with self._lock:
            found = self._tests.get((str(store.path), name))
        if found is None:
            return False, None
        return (False, found.result()) if found.done() else (True, None)


@cache
def route_tests() -> RouteTests:
    """Return the tests of this process, which every session sees."""
    return RouteTests()


def send_test(store: Store, name: str) -> ActionResult:
    """Send a test alert that fires and resolves at once; `route_tests().result` returns the outcome."""

    def act(who: str) -> ActionResult:
        if not route_tests().begin(store, name, who):
            return ActionResult(False, "A test is already in progress.")
        store.audit(
            who=who,
            origin=ORIGIN,
            action="test_route",
            selection={"route": name},
            count=1,
            outcome="sent a test",
        )
        return ActionResult(True, "The test alert is being sent.")

    return attempt(store, "test_route", {"route": name}, act, who=None, origin=ORIGIN)


def _run_test(store: Store, name: str, who: str) -> ActionResult:
    try:
        rule_set = rule_set_of(store)
        route = next((one for one in routes_of(rule_set) if one.name == name), None)
    except ProducerError as error:
        return ActionResult(False, str(error))
    if route is None:
        return ActionResult(False, "The route is no longer configured on this server.")
    answer = send_test_alert(route, rule_set, store=str(store.path), who=who)
    outcome = "Accepted" if answer.accepted else "NOT accepted"
    response = f" Response: {answer.body}" if answer.body else ""
    return ActionResult(answer.accepted, f"{outcome}: {answer.text}.{response}")

"""Acts on alerts: acknowledge, keep quiet, end a silence, try a route."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from producer_core.alerts import AlertLog, rule_set_of
from producer_core.alerts.routes import routes_of
from producer_core.alerts.send_test import send_test_alert
from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.errors import ProducerError
from producer_core.store import Store


def acknowledge(store: Store, alert_id: str, *, who: str | None = None, origin: str = ORIGIN) -> ActionResult:
    """Say that somebody looks after an alert."""

    def act(name: str) -> ActionResult:
        changed = AlertLog(store).acknowledge(alert_id, who=name, origin=origin)
        return ActionResult(changed, "Acknowledged." if changed else "Somebody has acknowledged it before.")

    return attempt(store, "acknowledge", {"alert": alert_id}, act, who=who, origin=origin)


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
    """Keep a rule quiet for a while, for one subject or (empty) for all."""

    def act(name: str) -> ActionResult:
        until = time.time() + seconds
        try:
            AlertLog(store).silence(rule, subject, until=until, who=name, why=why.strip(), origin=origin)
        except ValueError as error:
            return ActionResult(False, str(error))
        return ActionResult(
            True, f"{rule} is quiet{f' for {subject}' if subject else ''}: nobody is told of it."
        )

    selection = {"rule": rule, "subject": subject}
    return attempt(store, "silence", selection, act, who=who, origin=origin)


def unsilence(
    store: Store, rule: str, subject: str, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """End a silence now; what fires is told within seconds."""

    def act(name: str) -> ActionResult:
        ended = AlertLog(store).unsilence(rule, subject, who=name, origin=origin)
        return ActionResult(
            ended > 0, f"{rule} is not quiet any more." if ended else "Nothing keeps it quiet any more."
        )

    selection = {"rule": rule, "subject": subject}
    return attempt(store, "unsilence", selection, act, who=who, origin=origin)


# trying a route


class RouteTests:
    """Test alerts on their way; a receiver may take its time, and no page waits for it. Safe from any thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, "alert-test")
        self._lock = threading.Lock()  # guards the next field
        self._known: dict[tuple[str, str], Future[ActionResult]] = {}

    def begin(self, store: Store, name: str, who: str) -> bool:
        """False where one is on its way already."""
        key = str(store.path), name
        with self._lock:
            if key in self._known and not self._known[key].done():
                return False
            self._known[key] = self._threads.submit(_try, store, name, who)
            return True

    def result(self, store: Store, name: str) -> tuple[bool, ActionResult | None]:
        """Whether one is on its way, and how the last one went."""
        with self._lock:
            found = self._known.get((str(store.path), name))
        if found is None:
            return False, None
        return (False, found.result()) if found.done() else (True, None)


@cache
def route_tests() -> RouteTests:
    """Those of this process: every session sees them."""
    return RouteTests()


def try_route(store: Store, name: str) -> ActionResult:
    """Send a test alert that fires and is resolved right after; `trials().result` says how it went."""

    def act(who: str) -> ActionResult:
        if not route_tests().begin(store, name, who):
            return ActionResult(False, "A test is on its way.")
        store.audit(
            who=who,
            origin=ORIGIN,
            action="test_route",
            selection={"route": name},
            count=1,
            outcome="sent a test",
        )
        return ActionResult(True, "A test is on its way.")

    return attempt(store, "test_route", {"route": name}, act, who=None, origin=ORIGIN)


def _try(store: Store, name: str, who: str) -> ActionResult:
    try:
        book = rule_set_of(store)
        route = next((one for one in routes_of(book) if one.name == name), None)
    except ProducerError as error:
        return ActionResult(False, str(error))
    if route is None:
        return ActionResult(False, "This server does not have its address any more.")
    answer = send_test_alert(route, book, store=str(store.path), who=who)
    wrote = f" It wrote: {answer.body}" if answer.body else ""
    return ActionResult(
        answer.accepted, f"{'Taken' if answer.accepted else 'NOT taken'}: {answer.text}.{wrote}"
    )

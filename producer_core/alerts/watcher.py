"""The watcher of a store: evaluates its alerts and sends notifications, on background threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import mark_background_thread
from producer_core._internal.user_callbacks import is_containable
from producer_core.alerts.alert_state import Alert, AlertChange, alert, resolved
from producer_core.alerts.evaluator import AlertEvaluator
from producer_core.alerts.routes import Route, routes_of
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.sender import RouteSender
from producer_core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from producer_core.store import Store

logger = queued_logger(__name__)

STORE_UNAVAILABLE_AFTER = 60.0
"""Seconds without the store after which a notification is sent from memory."""


class AlertWatcher:
    """Evaluates alerts and sends notifications. Every process with the store runs a watcher; leases elect one of them.

    One thread evaluates every few seconds, and one thread per route sends, so a receiver that hangs delays neither the
    evaluation nor other routes, and nothing here delays sending messages. `routes` are added to those of the rules file
    and of the environment. When the store is unavailable for a minute, every watcher notifies its routes of that.
    """

    def __init__(
        self,
        store: Store,
        *,
        owner: str | None = None,
        rule_set: RuleSet | None = None,
        routes: Sequence[Route] = (),
        on_changes: Callable[[Sequence[AlertChange]], object] = lambda changes: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._store_path = str(store.path)
        self._on_changes = on_changes
        self._clock = clock
        self._monotonic = monotonic
        self._evaluator = AlertEvaluator(
            store, owner=owner, rule_set=rule_set, clock=clock, monotonic=monotonic
        )
        self._senders = [self._sender(route) for route in (*_configured(self._evaluator.rule_set), *routes)]
        self._unavailable_since: float | None = None
        self._store_alert: Alert | None = None
        self._delay = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    @property
    def routes(self) -> tuple[Route, ...]:
        """Return the routes through which this process can send."""
        return tuple(sender.route for sender in self._senders)

    @property
    def rule_set(self) -> RuleSet:
        """Return the current rule set."""
        return self._evaluator.rule_set

    @property
    def leads(self) -> bool:
        """Return whether this process evaluates the alerts."""
        return self._evaluator.leads

    def start(self, *, after: float = 0.0) -> None:
        """Start the threads. The first evaluation runs `after` seconds later."""
        self._delay = after
        for sender in self._senders:
            sender.start()
        self._thread.start()

    def add(self, route: Route) -> None:
        """Add a route. The watcher may already be running."""
        sender = self._sender(route)
        self._senders = [*self._senders, sender]
        if self._thread.is_alive():
            sender.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop the threads within `timeout` seconds. Unsent notifications stay in the store for another process."""
        deadline = time.monotonic() + timeout
        self._stopping.set()
        for sender in self._senders:
            sender.halt()
        if self._thread.is_alive():
            self._thread.join(timeout)
        for sender in self._senders:
            sender.stop(max(0.0, deadline - time.monotonic()))
        try:
            self._evaluator.stop()
        except StoreError as error:
            logger.info(**with_fields("lease not released", error=str(error)))

    def __enter__(self) -> AlertWatcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run_once(self) -> Sequence[AlertChange]:
        """Evaluate once and return the changes."""
        try:
            changes = self._evaluator.tick()
        except StoreError as error:
            self._store_failed(error)
            return ()
        self._store_recovered()
        if changes:
            for sender in self._senders:
                sender.flush_soon()
        return changes

    def _run(self) -> None:
        mark_background_thread()
        self._stopping.wait(self._delay)
        while not self._stopping.is_set():
            if changes := self.run_once():
                self._call_listener(changes)
            self._stopping.wait(self._evaluator.rule_set.every)

    def _sender(self, route: Route) -> RouteSender:
        return RouteSender(
            self._store,
            route,
            owner=self._evaluator.owner,
            rule_set=lambda: self._evaluator.rule_set,
            clock=self._clock,
            monotonic=self._monotonic,
        )

    def _call_listener(self, changes: Sequence[AlertChange]) -> None:
        try:
            self._on_changes(changes)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception("alert listener failed")

    def _store_failed(self, error: StoreError) -> None:
        """Notify the routes from memory after a while, because the store cannot hold an alert about itself."""
        moment = self._monotonic()
        if self._unavailable_since is None:
            self._unavailable_since = moment
            logger.warning(**with_fields("alerts cannot be evaluated", error=str(error)))
        if self._store_alert is None and moment - self._unavailable_since >= STORE_UNAVAILABLE_AFTER:
            now = self._clock()
            self._store_alert = alert("store_unavailable", self._store_path, now, reason=str(error))
            self._send_without_store(self._store_alert)

    def _store_recovered(self) -> None:
        self._unavailable_since = None
        if self._store_alert is not None:
            ended = resolved(self._store_alert, self._clock())
            self._store_alert = None
            self._send_without_store(replace(ended, telling_end=True))

    def _send_without_store(self, item: Alert) -> None:
        for sender in self._senders:
            if item.severity in sender.route.severities:
                sender.send_without_store(item, "resolved" if item.state == "resolved" else "firing")


def _configured(rule_set: RuleSet) -> tuple[Route, ...]:
    """Return the routes of the rule set; none where one is invalid, because alerts must be evaluated anyway."""
    try:
        return routes_of(rule_set)
    except ConfigError as error:
        logger.error(**with_fields("alert routes refused", error=str(error)))
        return ()

"""A watcher: judges a store's alerts and tells people, on threads of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

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

logger = logging.getLogger(__name__)

STORE_AWAY_AFTER = 60.0
"""Seconds without the store after which people are told so, past the store."""


class AlertWatcher:
    """Put one into every process that has the store: one of them judges, whichever; each route is told by one.

    One thread judges every few seconds and one thread a route tells, so a receiver that hangs holds up neither
    judging nor other routes, and nothing here holds up producing. `routes` are added to those of the rules file and
    the environment. When the store itself cannot be had for a minute, every watcher says so over its routes.
    """

    def __init__(
        self,
        store: Store,
        *,
        owner: str | None = None,
        book: RuleSet | None = None,
        routes: Sequence[Route] = (),
        heard: Callable[[Sequence[AlertChange]], object] = lambda changes: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._where = str(store.path)
        self._heard = heard
        self._clock = clock
        self._monotonic = monotonic
        self._evaluator = AlertEvaluator(store, owner=owner, book=book, clock=clock, monotonic=monotonic)
        self._senders = [self._sender(route) for route in (*_configured(self._evaluator.book), *routes)]
        self._away_since: float | None = None
        self._away: Alert | None = None
        self._first = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    @property
    def routes(self) -> tuple[Route, ...]:
        """Over what this process can tell people."""
        return tuple(sender.route for sender in self._senders)

    @property
    def book(self) -> RuleSet:
        """The rules that hold now."""
        return self._evaluator.book

    @property
    def leads(self) -> bool:
        """Whether this process is the one that judges."""
        return self._evaluator.leads

    def start(self, *, after: float = 0.0) -> None:
        """Begin; the first look is taken `after` seconds."""
        self._first = after
        for sender in self._senders:
            sender.start()
        self._thread.start()

    def add(self, route: Route) -> None:
        """One more route, while it runs."""
        sender = self._sender(route)
        self._senders = [*self._senders, sender]
        if self._thread.is_alive():
            sender.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End within the time; what was not told waits in the store for another process."""
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
            logger.info("a lease was not given back", extra={"error": str(error)})

    def __enter__(self) -> AlertWatcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def look(self) -> Sequence[AlertChange]:
        """Judge once, now; what changed."""
        try:
            changes = self._evaluator.tick()
        except StoreError as error:
            self._without_store(error)
            return ()
        self._with_store()
        if changes:
            for sender in self._senders:
                sender.flush_soon()
        return changes

    def _run(self) -> None:
        mark_background_thread()
        self._stopping.wait(self._first)
        while not self._stopping.is_set():
            if changes := self.look():
                self._tell_listener(changes)
            self._stopping.wait(self._evaluator.book.every)

    def _sender(self, route: Route) -> RouteSender:
        return RouteSender(
            self._store,
            route,
            owner=self._evaluator.owner,
            book=lambda: self._evaluator.book,
            clock=self._clock,
            monotonic=self._monotonic,
        )

    def _tell_listener(self, changes: Sequence[AlertChange]) -> None:
        try:
            self._heard(changes)
        except BaseException as error:
            if not is_containable(error):
                raise
            logger.exception("alert listener failed")

    def _without_store(self, error: StoreError) -> None:
        """Nobody can write an alert about the store into the store."""
        moment = self._monotonic()
        if self._away_since is None:
            self._away_since = moment
            logger.warning("alerts cannot be judged", extra={"error": str(error)})
        if self._away is None and moment - self._away_since >= STORE_AWAY_AFTER:
            now = self._clock()
            self._away = alert("store_unavailable", self._where, now, reason=str(error))
            self._say_without_store(self._away)

    def _with_store(self) -> None:
        self._away_since = None
        if self._away is not None:
            ended = resolved(self._away, self._clock())
            self._away = None
            self._say_without_store(replace(ended, telling_end=True))

    def _say_without_store(self, item: Alert) -> None:
        for sender in self._senders:
            if item.severity in sender.route.severities:
                sender.say_without_store(item, "resolved" if item.state == "resolved" else "firing")


def _configured(book: RuleSet) -> tuple[Route, ...]:
    """The routes of the book; a mistake in one must not keep alerts from being judged."""
    try:
        return routes_of(book)
    except ConfigError as error:
        logger.error("routes of alerts refused", extra={"error": str(error)})
        return ()

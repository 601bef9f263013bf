"""A sender: tells one route what its outbox holds, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from producer_core._internal.read_activity import mark_background_thread
from producer_core.alerts.alert_state import Alert
from producer_core.alerts.lease import LEASE, Lease
from producer_core.alerts.notification import Notification, RouteResult
from producer_core.alerts.outbox import LONGEST_PAUSE, Outbox, OutboxEntry, pause
from producer_core.alerts.payload import Status, notification
from producer_core.alerts.routes import Route
from producer_core.alerts.rule_set import RuleSet
from producer_core.errors import StoreError

if TYPE_CHECKING:
    from producer_core.store import Store

logger = logging.getLogger(__name__)

_FORGET_EVERY = 3600.0


class RouteSender:
    """Works for one route in one process at a time (a lease a route), at least once, the oldest first.

    A receiver that does not answer is tried again after a pause that doubles up to five minutes; meanwhile nothing
    else is tried on it. One that refuses a notification gets the others. What a process was about to say when it
    died is said by the next one, with the same key.
    """

    def __init__(
        self,
        store: Store,
        route: Route,
        *,
        owner: str,
        book: Callable[[], RuleSet] = RuleSet,
        every: float = 2.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        lease: float | None = None,
    ) -> None:
        self.route = route
        self._book = book
        self._every = every
        self._clock = clock
        self._monotonic = monotonic
        self._where = str(store.path)
        self._lease = Lease(
            store,
            f"alerts/{route.name}",
            owner,
            seconds=lease or LEASE + 2 * route.patience,
            monotonic=monotonic,
        )
        self._outbox = Outbox(store, route)
        self._failures = 0
        self._unwritten: set[tuple[str, str]] = set()  # told, and the store could not be told so
        self._quiet_until = float("-inf")
        self._forgot = float("-inf")
        self._lock = threading.Lock()  # guards the next field
        self._direct: list[tuple[Alert, Status]] = []
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"alerts-{route.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def halt(self) -> None:
        """Begin nothing more."""
        self._stopping.set()
        self._wake.set()

    def stop(self, timeout: float = 2.0) -> None:
        """End; what is not said waits in the store. A receiver that hangs is not waited for."""
        self.halt()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if not self._thread.is_alive():
            try:
                self._lease.drop()
            except StoreError as error:
                logger.info("a lease was not given back", extra={"error": str(error)})

    def flush_soon(self) -> None:
        """There may be something to say."""
        self._wake.set()

    def say_without_store(self, item: Alert, status: Status) -> None:
        """Say it from memory, because the store cannot be had: the last word of each alert, bounded by them."""
        with self._lock:
            self._direct = [(known, was) for known, was in self._direct if known.key != item.key]
            self._direct.append((item, status))
        self._wake.set()

    def round(self) -> int:
        """Says what is due, if this process is the one to; how many notifications the receiver took."""
        now = self._clock()
        if self._monotonic() < self._quiet_until or not self._lease.hold(now):
            return 0
        self._outbox.collect(now, repeat=self._book().repeat)
        if self._monotonic() - self._forgot > _FORGET_EVERY:
            self._forgot = self._monotonic()
            self._outbox.forget(now)
        taken = sum(self._say(group) for group in _groups(self._outbox.due(now)))
        if self._outbox.heartbeat_due(now) and self._tell(self._heartbeat(now)).taken:
            self._outbox.heartbeat_sent(now)
        return taken

    def _run(self) -> None:
        mark_background_thread()
        away = False
        while not self._stopping.is_set():
            self._wake.wait(self._every)
            self._wake.clear()
            try:
                self._say_direct()
                self.round()
                away = False
            except StoreError as error:
                if not away:
                    logger.warning("cannot look for alerts to tell", extra={"error": str(error)})
                away = True

    def _say(self, entries: list[OutboxEntry]) -> bool:
        """One notification; entries are of one rule and status."""
        if (
            self._stopping.is_set()
            or self._monotonic() < self._quiet_until
            or not self._lease.hold(self._clock())
        ):
            return False
        fresh = [entry for entry in entries if entry.key not in self._unwritten]
        answer = self._tell_of(fresh) if fresh else RouteResult(True, "told before")
        now = self._clock()
        if answer.taken:
            self._unwritten |= {entry.key for entry in entries}
            self._outbox.said(entries, answer, now)
            self._unwritten -= {entry.key for entry in entries}
            return True
        for entry in self._outbox.not_said(fresh, answer, now):
            logger.error(
                "an alert was told to nobody",
                extra={"route": self.route.name, "alert": entry.alert.alert_id, "answer": answer.text},
            )
        return False

    def _tell_of(self, entries: list[OutboxEntry]) -> RouteResult:
        alerts, status = [entry.alert for entry in entries], entries[0].status
        if status != "repeat":
            return self._tell(self._notification(alerts, status))
        again = max(entry.queued_at for entry in entries)
        return self._tell(self._notification(alerts, "firing", again=again))

    def _tell(self, said: Notification) -> RouteResult:
        """Once, and remembered for the pauses; the beginning and the end of a trouble are logged."""
        answer = self.route.tell(said)
        if answer.taken:
            if self._failures:
                logger.warning("alerts are told again", extra={"route": self.route.name})
            self._failures = 0
            return answer
        if not self._failures:
            logger.warning("alerts cannot be told", extra={"route": self.route.name, "answer": answer.text})
        self._failures += 1
        if not answer.refused:
            quiet = answer.later if answer.later is not None else pause(self._failures - 1)
            self._quiet_until = self._monotonic() + min(quiet, 12 * LONGEST_PAUSE)
        return answer

    def _say_direct(self) -> None:
        with self._lock:
            waiting = list(self._direct)
        for item, status in waiting:
            if self._monotonic() < self._quiet_until:
                return
            if self._tell(self._notification([item], status)).taken:
                with self._lock:
                    self._direct = [pair for pair in self._direct if pair != (item, status)]

    def _notification(
        self, alerts: list[Alert], status: Status, *, again: float | None = None
    ) -> Notification:
        return notification(
            alerts, status, receiver=self.route.name, book=self._book(), store=self._where, again=again
        )

    def _heartbeat(self, now: float) -> Notification:
        """Says that alerts are judged and told; who does not hear it for long should ask why."""
        item = Alert(
            "Watchdog", "info", "producer_core", None, None, "Alerts are judged and told.",
            "Nothing to do while this comes. When it stays away, look for the process that evaluates alerts.",
            now, now, fired_at=now,
        )  # fmt: skip
        return self._notification([item], "firing")


def _groups(entries: Iterable[OutboxEntry]) -> list[list[OutboxEntry]]:
    """By rule and status."""
    ordered = sorted(entries, key=lambda entry: (entry.status, entry.alert.rule))
    return [list(group) for _, group in groupby(ordered, key=lambda entry: (entry.status, entry.alert.rule))]

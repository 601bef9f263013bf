"""The sender of one route's notifications, on its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from producer_core._internal.lease_watch import LEASE
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import mark_background_thread
from producer_core.alerts.alert_state import Alert
from producer_core.alerts.notification import Notification, RouteResult
from producer_core.alerts.outbox import BATCH_SIZE, MAX_RETRY_DELAY, Outbox, OutboxEntry, retry_delay
from producer_core.alerts.payload import Status, notification
from producer_core.alerts.routes import Route
from producer_core.alerts.rule_set import RuleSet
from producer_core.errors import StoreError

if TYPE_CHECKING:
    from producer_core.store import Store

logger = queued_logger(__name__)

_FORGET_EVERY = 3600.0


class RouteSender:
    """Sends the notifications of one route at least once, oldest first. A lease per route admits one process at a time.

    While a receiver does not respond, the sender sends nothing else to it and retries after a delay that doubles up to
    five minutes. A receiver that refuses one notification still gets the others. A notification that was interrupted
    by the end of its process is sent by the next process with the same key.

    A receiver such as Alertmanager forgets an alert that is not sent again. Its route has a `renewal`, the seconds after
    which the firing alerts are sent to it again, instead of the rule set's `repeat`.
    """

    def __init__(
        self,
        store: Store,
        route: Route,
        *,
        owner: str,
        rule_set: Callable[[], RuleSet] = RuleSet,
        every: float = 2.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        lease: float | None = None,
    ) -> None:
        from producer_core.store.lease import Lease  # loads DuckDB

        self.route = route
        self._rule_set = rule_set
        self._every = every
        self._clock = clock
        self._monotonic = monotonic
        self._store_path = str(store.path)
        self._lease = Lease(
            store,
            f"alerts/{route.name}",
            owner,
            seconds=lease or LEASE + 2 * route.timeout,
            monotonic=monotonic,
        )
        self._outbox = Outbox(store, route)
        self._renewal = float(getattr(route, "renewal", 0.0))
        self._renewed_at = float("-inf")
        self._failures = 0
        self._unrecorded: set[tuple[str, str]] = set()  # accepted, but not recorded in the store yet
        self._retry_at = float("-inf")
        self._forgot_at = float("-inf")
        self._lock = threading.Lock()  # guards the next field
        self._without_store: list[tuple[Alert, Status]] = []
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"alerts-{route.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def halt(self) -> None:
        """Start no further notification."""
        self._stopping.set()
        self._wake.set()

    def stop(self, timeout: float = 2.0) -> None:
        """End the thread. Unsent notifications stay in the store. Do not wait longer for a receiver that hangs."""
        self.halt()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if not self._thread.is_alive():
            try:
                self._lease.drop()
            except StoreError as error:
                logger.info(**with_fields("lease not released", error=str(error)))

    def flush_soon(self) -> None:
        """Wake the thread, because a notification may be due."""
        self._wake.set()

    def send_without_store(self, item: Alert, status: Status) -> None:
        """Send from memory while the store is unavailable. Only the latest status of each alert is kept."""
        with self._lock:
            others = [(known, was) for known, was in self._without_store if known.key != item.key]
            self._without_store = [*others, (item, status)]
        self._wake.set()

    def run_once(self) -> int:
        """Send the due notifications if this process holds the lease. Return the number that the receiver accepted."""
        now = self._clock()
        if self._monotonic() < self._retry_at or not self._lease.hold(now):
            return 0
        self._outbox.collect(now, repeat=0.0 if self._renewal else self._rule_set().repeat)
        if self._monotonic() - self._forgot_at > _FORGET_EVERY:
            self._forgot_at = self._monotonic()
            self._outbox.forget(now)
        if self._renewal and self._monotonic() - self._renewed_at >= self._renewal:
            self._renew(now)
        accepted = sum(self._send_group(group) for group in _groups(self._outbox.due(now)))
        if self._outbox.heartbeat_due(now) and self._send(self._heartbeat(now)).accepted:
            self._outbox.heartbeat_sent(now)
        return accepted

    def _run(self) -> None:
        mark_background_thread()
        failing = False
        while not self._stopping.is_set():
            self._wake.wait(self._every)
            self._wake.clear()
            try:
                self._send_from_memory()
                self.run_once()
                failing = False
            except StoreError as error:
                if not failing:
                    logger.warning(**with_fields("cannot read the notifications to send", error=str(error)))
                failing = True

    def _send_group(self, entries: list[OutboxEntry]) -> bool:
        """Send one notification for entries of one rule and status. Return whether the receiver accepted it."""
        if not self._may_send():
            return False
        unsent = [entry for entry in entries if entry.key not in self._unrecorded]
        answer = self._send_entries(unsent) if unsent else RouteResult(True, "already sent")
        now = self._clock()
        if answer.accepted:
            self._unrecorded |= {entry.key for entry in entries}
            self._outbox.mark_sent(entries, answer, now)
            self._unrecorded -= {entry.key for entry in entries}
            return True
        for entry in self._outbox.mark_failed(unsent, answer, now):
            logger.error(
                **with_fields(
                    "notification abandoned",
                    route=self.route.name,
                    alert=entry.alert.alert_id,
                    answer=answer.text,
                )
            )
        return False

    def _renew(self, now: float) -> None:
        """Send the firing alerts again. After a failure, the time of the next attempt is that of any notification."""
        failing = self._failures > 0
        for alerts in _batches(self._outbox.to_renew()):
            if not self._may_send():
                return
            answer = self._send(self._notification(alerts, "firing", again=now))
            if not answer.accepted:
                self._outbox.mark_failed([], answer, self._clock())
            elif failing:
                self._outbox.mark_sent([], answer, self._clock())
        if self._monotonic() >= self._retry_at:
            self._renewed_at = self._monotonic()

    def _may_send(self) -> bool:
        return (
            not self._stopping.is_set()
            and self._monotonic() >= self._retry_at
            and self._lease.hold(self._clock())
        )

    def _send_entries(self, entries: list[OutboxEntry]) -> RouteResult:
        alerts, status = [entry.alert for entry in entries], entries[0].status
        if status != "repeat":
            return self._send(self._notification(alerts, status))
        again = max(entry.queued_at for entry in entries)
        return self._send(self._notification(alerts, "firing", again=again))

    def _send(self, message: Notification) -> RouteResult:
        """Send once. Set the time of the next attempt after a failure, and log where a series of failures begins or ends."""
        answer = self.route.send(message)
        if answer.accepted:
            if self._failures:
                logger.warning(
                    **with_fields("notification delivery has recovered", route=self.route.name),
                    group=id(self),
                )
            self._failures = 0
            return answer
        if not self._failures:
            logger.warning(
                **with_fields("notifications are failing", route=self.route.name, answer=answer.text),
                group=id(self),
            )
        self._failures += 1
        if not answer.refused:
            delay = answer.retry_after if answer.retry_after is not None else retry_delay(self._failures - 1)
            self._retry_at = self._monotonic() + min(delay, self._renewal or 12 * MAX_RETRY_DELAY)
        return answer

    def _send_from_memory(self) -> None:
        with self._lock:
            waiting = list(self._without_store)
        for item, status in waiting:
            if self._monotonic() < self._retry_at:
                return
            if self._send(self._notification([item], status)).accepted:
                with self._lock:
                    self._without_store = [pair for pair in self._without_store if pair != (item, status)]

    def _notification(
        self, alerts: list[Alert], status: Status, *, again: float | None = None
    ) -> Notification:
        return notification(
            alerts,
            status,
            receiver=self.route.name,
            rule_set=self._rule_set(),
            store=self._store_path,
            again=again,
        )

    def _heartbeat(self, now: float) -> Notification:
        """Return the heartbeat. Its absence means that alerts are not evaluated or notifications are not sent."""
        item = Alert(
            "Watchdog", "info", "producer_core", None, None, "Alert evaluation and notifications are running.",
            "No action needed as long as this notification arrives. If it stops, check the process that evaluates alerts.",
            now, now, fired_at=now,
        )  # fmt: skip
        return self._notification([item], "firing")


def _batches(alerts: Sequence[Alert]) -> Iterator[list[Alert]]:
    """Group the alerts by rule, with at most BATCH_SIZE in a group."""
    for _, group in groupby(alerts, key=lambda item: item.rule):
        same = list(group)
        yield from (same[start : start + BATCH_SIZE] for start in range(0, len(same), BATCH_SIZE))


def _groups(entries: Iterable[OutboxEntry]) -> list[list[OutboxEntry]]:
    """Group the entries by status and rule."""
    ordered = sorted(entries, key=lambda entry: (entry.status, entry.alert.rule))
    return [list(group) for _, group in groupby(ordered, key=lambda entry: (entry.status, entry.alert.rule))]

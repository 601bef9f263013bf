"""The outbox of a route: its unsent notifications, kept in the store so that none is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from producer_core.alerts.alert_state import Alert

if TYPE_CHECKING:
    from producer_core.alerts.notification import RouteResult
    from producer_core.alerts.routes import Route
    from producer_core.store import Store

BATCH_SIZE = 100
"""Maximum number of alerts in one notification and in one run of the sender."""

FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 5.0, 300.0

_CLOCK_TOLERANCE = 60.0
"""Seconds. A notification with a later time than this was sent before the system clock was set back."""

GIVEN_UP_AFTER = 24 * 3600.0
"""Seconds after which an unsent notification is abandoned. The log and the store record that."""

_KEPT = 7 * 24 * 3600.0

EntryStatus = Literal["firing", "repeat", "resolved"]
"""The content of a notification: the alert fires, it still fires, or it is resolved."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One notification to send."""

    alert: Alert
    status: EntryStatus
    queued_at: float
    attempts: int

    @property
    def key(self) -> tuple[str, str]:
        return self.alert.alert_id, self.status


class Outbox:
    """Queues the notifications of one route. The queue survives the process."""

    def __init__(self, store: Store, route: Route) -> None:
        self._store = store
        self._route = route
        self._registered = False

    def collect(self, now: float, *, repeat: float = 0.0) -> int:
        """Queue the notifications that are due, and return their number. Costs one read when there is none.

        An alert that still fires, unacknowledged, is queued again after `repeat` seconds (0: never).
        """
        if not self._registered:
            self._store.execute("alerts_route_known", name=self._route.name, kind=self._route.kind, now=now)
            self._registered = True
        query = {"route": self._route.name, "severities": ",".join(self._route.severities), "limit": 1000}
        with self._store.borrow():
            found = self._store.rows("alerts_to_queue", **query)
            obsolete = self._store.rows("alerts_repeats_moot", route=self._route.name)
            if repeat > 0:
                found += self._store.rows(
                    "alerts_to_repeat", **query, before=now - repeat, ahead=now + _CLOCK_TOLERANCE
                )
        if found or obsolete:
            with self._store.borrow(write=True):
                for row in found:
                    self._queue(row["alert_id"], row["status"], now)
                for row in obsolete:
                    self._store.execute(
                        "alerts_repeat_dropped", route=self._route.name, alert_id=row["alert_id"], now=now
                    )
        return len(found)

    def _queue(self, alert_id: str, status: EntryStatus, now: float) -> None:
        entry = {"route": self._route.name, "alert_id": alert_id, "now": now}
        if status == "repeat":
            self._store.execute("alerts_queue_again", **entry)
        self._store.execute("alerts_queue", **entry, status=status)

    def to_renew(self) -> list[Alert]:
        """Return the alerts that fire and whose beginning the receiver accepted."""
        rows = self._store.rows(
            "alerts_to_renew", route=self._route.name, severities=",".join(self._route.severities)
        )
        return [_alert(row) for row in rows]

    def due(self, now: float) -> list[OutboxEntry]:
        rows = self._store.rows(
            "alerts_outbox_due",
            route=self._route.name,
            now=now,
            farthest=now + 2 * MAX_RETRY_DELAY,
            limit=BATCH_SIZE,
        )
        return [OutboxEntry(_alert(row), row["status"], row["queued_at"], row["attempts"]) for row in rows]

    def mark_sent(self, entries: Iterable[OutboxEntry], answer: RouteResult, now: float) -> None:
        """Record that the receiver accepted the entries."""
        with self._store.borrow(write=True):
            for entry in entries:
                self._settle(entry, "told", answer, now)
            self._store.execute("alerts_route_answered", name=self._route.name, answer=answer.text, now=now)

    def mark_failed(
        self, entries: Sequence[OutboxEntry], answer: RouteResult, now: float
    ) -> list[OutboxEntry]:
        """Schedule a retry of the entries. Return those that are abandoned because they are too old."""
        abandoned = [entry for entry in entries if abs(now - entry.queued_at) > GIVEN_UP_AFTER]
        with self._store.borrow(write=True):
            for entry in entries:
                if entry in abandoned:
                    self._settle(entry, "given up", answer, now)
                else:
                    self._store.execute(
                        "alerts_outbox_later",
                        **self._named(entry),
                        next_at=now + (answer.retry_after or retry_delay(entry.attempts)),
                        answer=answer.text,
                    )
            self._store.execute("alerts_route_failed", name=self._route.name, answer=answer.text, now=now)
        return abandoned

    def forget(self, now: float) -> None:
        """Delete the entries that were settled more than a week ago."""
        self._store.execute("alerts_outbox_forget", before=now - _KEPT)

    def heartbeat_due(self, now: float) -> bool:
        """Return whether a heartbeat is due and a process evaluates the alerts."""
        if not self._route.heartbeat:
            return False
        known = next(
            (row for row in self._store.rows("alert_routes") if row["name"] == self._route.name), None
        )
        last = known["heartbeat_at"] if known else None
        if last is not None and 0 <= now - last < self._route.heartbeat:
            return False
        return any(row["lease_until"] > now for row in self._store.rows("lease_holder", name="alerts"))

    def heartbeat_sent(self, now: float) -> None:
        self._store.execute("alerts_route_heartbeat", name=self._route.name, now=now)

    def _settle(self, entry: OutboxEntry, outcome: str, answer: RouteResult, now: float) -> None:
        self._store.execute(
            "alerts_outbox_said", **self._named(entry), outcome=outcome, answer=answer.text, now=now
        )

    def _named(self, entry: OutboxEntry) -> dict[str, str]:
        return {"route": self._route.name, "alert_id": entry.alert.alert_id, "status": entry.status}


_OUTBOX_COLUMNS = ("id", "status", "queued_at", "attempts")


def _alert(row: Mapping[str, Any]) -> Alert:
    return Alert(**{name: value for name, value in row.items() if name not in _OUTBOX_COLUMNS})


def retry_delay(attempts: int) -> float:
    """Return the seconds until the next attempt after this number of failures: doubling, capped."""
    return float(min(FIRST_RETRY_DELAY * 2.0 ** min(attempts, 20), MAX_RETRY_DELAY))

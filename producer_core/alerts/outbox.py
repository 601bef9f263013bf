"""An outbox: what one route still has to say, in the store, so that nothing is lost and nothing waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from producer_core.alerts.alert_state import Alert

if TYPE_CHECKING:
    from producer_core.alerts.notification import RouteResult
    from producer_core.alerts.routes import Route
    from producer_core.store import Store

MOST = 100
"""Alerts in one notification, and said in one round."""

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0

_CLOCK_WAS_SET = 60.0
"""What was said so far ahead of now was said before the clock was set back."""

GIVEN_UP_AFTER = 24 * 3600.0
"""Seconds after which nobody needs to hear of it by this way any more; it is told in the log and in the store."""

_KEPT = 7 * 24 * 3600.0

Saying = Literal["firing", "repeat", "resolved"]
"""What there is to say of an alert: that it began, that it still fires, that it ended."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One thing to say."""

    alert: Alert
    status: Saying
    queued_at: float
    attempts: int

    @property
    def key(self) -> tuple[str, str]:
        return self.alert.alert_id, self.status


class Outbox:
    """The outbox of one route. What it holds survives its process."""

    def __init__(self, store: Store, route: Route) -> None:
        self._store = store
        self._route = route
        self._known = False

    def collect(self, now: float, *, repeat: float = 0.0) -> int:
        """Puts in what has to be said and is not in yet; how much that was. Costs a read when there is nothing.

        What still fires, and nobody looks after, is said again after `repeat` seconds (0: never).
        """
        if not self._known:
            self._store.execute("alerts_route_known", name=self._route.name, kind=self._route.kind, now=now)
            self._known = True
        asked = {"route": self._route.name, "severities": ",".join(self._route.severities), "limit": 1000}
        with self._store.borrow():
            found = self._store.rows("alerts_to_queue", **asked)
            moot = self._store.rows("alerts_repeats_moot", route=self._route.name)
            if repeat > 0:
                found += self._store.rows(
                    "alerts_to_repeat", **asked, before=now - repeat, ahead=now + _CLOCK_WAS_SET
                )
        if found or moot:
            with self._store.borrow(write=True):
                for row in found:
                    self._queue(row["alert_id"], row["status"], now)
                for row in moot:
                    self._store.execute(
                        "alerts_repeat_dropped", route=self._route.name, alert_id=row["alert_id"], now=now
                    )
        return len(found)

    def _queue(self, alert_id: str, status: Saying, now: float) -> None:
        entry = {"route": self._route.name, "alert_id": alert_id, "now": now}
        if status == "repeat":
            self._store.execute("alerts_queue_again", **entry)
        self._store.execute("alerts_queue", **entry, status=status)

    def due(self, now: float) -> list[OutboxEntry]:
        rows = self._store.rows(
            "alerts_outbox_due",
            route=self._route.name,
            now=now,
            farthest=now + 2 * LONGEST_PAUSE,
            limit=MOST,
        )
        return [
            OutboxEntry(
                Alert(**{name: value for name, value in row.items() if name not in _OWN}),
                row["status"],
                row["queued_at"],
                row["attempts"],
            )
            for row in rows
        ]

    def said(self, entries: Iterable[OutboxEntry], answer: RouteResult, now: float) -> None:
        """The receiver has it."""
        with self._store.borrow(write=True):
            for entry in entries:
                self._settle(entry, "told", answer, now)
            self._store.execute("alerts_route_answered", name=self._route.name, answer=answer.text, now=now)

    def not_said(self, entries: Sequence[OutboxEntry], answer: RouteResult, now: float) -> list[OutboxEntry]:
        """To be tried again later; returned are those that are given up."""
        old = [entry for entry in entries if abs(now - entry.queued_at) > GIVEN_UP_AFTER]
        with self._store.borrow(write=True):
            for entry in entries:
                if entry in old:
                    self._settle(entry, "given up", answer, now)
                else:
                    self._store.execute(
                        "alerts_outbox_later",
                        **self._named(entry),
                        next_at=now + (answer.later or pause(entry.attempts)),
                        answer=answer.text,
                    )
            self._store.execute("alerts_route_failed", name=self._route.name, answer=answer.text, now=now)
        return old

    def forget(self, now: float) -> None:
        """Delete what was said a week ago."""
        self._store.execute("alerts_outbox_forget", before=now - _KEPT)

    def heartbeat_due(self, now: float) -> bool:
        """Whether it is time for a sign of life, and somebody judges the alerts."""
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


_OWN = ("id", "status", "queued_at", "attempts")


def pause(attempts: int) -> float:
    """Seconds until the next attempt after so many failed ones: doubling, capped."""
    return float(min(FIRST_PAUSE * 2.0 ** min(attempts, 20), LONGEST_PAUSE))

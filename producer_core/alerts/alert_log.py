"""The log of a store's alerts: firing and resolved alerts, acknowledgements and silences."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from producer_core.alerts.alert_state import Alert, AlertChange, Key, Silence, State
from producer_core.alerts.rule_set_file import rule_set_of
from producer_core.alerts.rules import RULES
from producer_core.roles.role_check import check_operator

if TYPE_CHECKING:
    from producer_core.store import Store


class AlertLog:
    """Stores the alerts of one store, with their acknowledgements and silences.

    `acknowledge`, `silence` and `unsilence` raise NotPermitted if the approval policy does not let this person act.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def record(self, changes: Iterable[AlertChange], *, told_by: str = "") -> None:
        """Store the changes that a producer (`told_by`) reports, in one transaction.

        The same change by a second watcher has no effect.
        """
        with self._store.borrow(write=True):
            for change in changes:
                _RECORD[change.kind](self._store, replace(change.alert, told_by=told_by))

    def open_alerts(self) -> Sequence[Alert]:
        """Return the pending and firing alerts, and the resolved ones without a decision about their notification."""
        return [Alert(**row) for row in self._store.rows("alerts_known")]

    def apply(self, changes: Sequence[AlertChange], *, holder: str, lease: str) -> bool:
        """Store the changes of an evaluation in one transaction.

        Store nothing and return False when another process has acquired the lease.
        """
        with self._store.borrow(write=True):
            if [row["owner"] for row in self._store.rows("lease_holder", name=lease)] != [holder]:
                return False
            for change in changes:
                _APPLY[change.kind](self._store, change.alert)
        return True

    def shift(self, seconds: float) -> None:
        """Move the running delays by a change of the system clock, so that they end when they would have."""
        self._store.execute("alerts_shift", seconds=seconds)

    def firing(self) -> dict[Key, Alert]:
        return {item.key: item for item in self.list(state="firing", limit=10_000)}

    def list(
        self,
        *,
        state: State | None = None,
        since: float | None = None,
        limit: int = 100,
        application: str | None = None,
        cluster: str | None = None,
    ) -> list[Alert]:
        """Return the alerts: firing first, then by time, newest first.

        With `since`, return only alerts that fire or were resolved after that time. `application` and `cluster` leave out
        alerts about producers of others.
        """
        rows = self._store.rows(
            "alerts_list",
            state=state,
            since=since,
            limit=limit,
            now=self._clock(),
            application=application,
            cluster=cluster,
        )
        return [Alert(**{name: value for name, value in row.items() if name != "alert_id"}) for row in rows]

    def acknowledge(self, alert_id: str, *, who: str, origin: str) -> bool:
        """Acknowledge an alert. Return False when it is unknown or already acknowledged.

        A lasting alert is resolved by the acknowledgement.
        """
        return self.acknowledge_all((alert_id,), who=who, origin=origin) == 1

    def acknowledge_all(self, alert_ids: Iterable[str], *, who: str, origin: str) -> int:
        """Acknowledge several alerts in one transaction, each with its own audit entry. Return how many it changed."""
        with self._acting(who, origin):
            return sum([self._acknowledge(alert_id, who, origin) for alert_id in alert_ids])

    def _acknowledge(self, alert_id: str, who: str, origin: str) -> bool:
        now = self._clock()
        changed = self._store.execute("alerts_acknowledge", alert_id=alert_id, who=who, now=now) > 0
        for row in self._store.rows("alert_firing", alert_id=alert_id) if changed else ():
            if row["rule"] in RULES and RULES[row["rule"]].lasting:
                self._store.execute("alerts_resolve", **row, at=now)
        self._store.audit(
            who=who,
            origin=origin,
            action="acknowledge",
            selection={"alert_id": alert_id},
            count=int(changed),
            outcome="acknowledged" if changed else "unknown, or already acknowledged",
        )
        return changed

    def silence(
        self, rule: str, subject: str = "", *, until: float, who: str, why: str, origin: str
    ) -> Silence:
        """Suppress the notifications of `rule` until a given time. Its alerts still fire and resolve.

        A receiver that was notified of the beginning of an alert is notified of its end. For alerts that are still
        firing when the silence ends, notifications are sent then.
        """
        known = self.rules()
        if rule not in known:
            raise ValueError(f"Unknown rule {rule!r}. The rules are {', '.join(sorted(known))}.")
        silence = Silence(rule, subject, until, who, why, self._clock())
        with self._acting(who, origin):
            self._store.execute(
                "alerts_silence",
                rule=rule,
                subject=subject,
                until=until,
                who=who,
                why=why,
                now=silence.created_at,
            )
            self._store.audit(
                who=who,
                origin=origin,
                action="silence",
                selection={"rule": rule, "subject": subject},
                count=1,
                outcome=f"silenced: {why}",
            )
        return silence

    def unsilence(self, rule: str, subject: str = "", *, who: str, origin: str) -> int:
        """End the silences of a rule with this subject (empty: those for every subject). Return their number."""
        with self._acting(who, origin):
            ended = self._store.execute("alerts_unsilence", rule=rule, subject=subject, now=self._clock())
            self._store.audit(
                who=who,
                origin=origin,
                action="unsilence",
                selection={"rule": rule, "subject": subject},
                count=ended,
                outcome="silence ended" if ended else "no silence found",
            )
        return ended

    def rules(self) -> frozenset[str]:
        """Return the known rule names: built-in, from the rules file, and of earlier alerts."""
        return frozenset(rule_set_of(self._store).rules) | {
            row["rule"] for row in self._store.rows("alerts_rules_seen")
        }

    def silences(self) -> Sequence[Silence]:
        return [Silence(**row) for row in self._store.rows("silences", now=self._clock())]

    @contextlib.contextmanager
    def _acting(self, who: str, origin: str) -> Iterator[None]:
        """Run the block as one transaction, if this person may act on alerts."""
        with self._store.borrow(write=True):
            check_operator(
                self._store, who=who, origin=origin, now=self._clock(), act="acknowledge or silence alerts"
            )
            yield


def _fire(store: Store, item: Alert) -> None:
    store.execute(
        "alerts_fire",
        **_content(item),
        alert_id=item.alert_id,
        started_at=item.started_at,
        told_by=item.told_by,
    )


def _update(store: Store, item: Alert) -> None:
    store.execute("alerts_update", **_content(item), at=item.changed_at)


def _resolve(store: Store, item: Alert) -> None:
    store.execute("alerts_resolve", rule=item.rule, subject=item.subject, at=item.changed_at)


def _begin(store: Store, item: Alert) -> None:
    store.execute("alerts_begin", **_content(item), **_named(item, *_STEP, "alert_id", "started_at"))


def _step(store: Store, item: Alert) -> None:
    content = {name: value for name, value in _content(item).items() if name not in ("rule", "subject")}
    store.execute("alerts_step", **content, **_named(item, *_STEP, "alert_id", "resolved_at"))


def _begin_or_step(store: Store, item: Alert) -> None:
    _begin(store, item)
    _step(store, item)


def _drop(store: Store, item: Alert) -> None:
    store.execute("alerts_drop", alert_id=item.alert_id)


def _decide(store: Store, item: Alert) -> None:
    store.execute("alerts_decide", **_named(item, "alert_id", "muted_by", "telling", "telling_end"))


_STEP = ("state", "changed_at", "fired_at", "since")


def _content(item: Alert) -> dict[str, Any]:
    return _named(item, "rule", "subject", "severity", "value", "threshold", "text", "advice")


def _named(item: Alert, *names: str) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


_RECORD: Mapping[str, Callable[[Store, Alert], None]] = {
    "fired": _fire,
    "updated": _update,
    "resolved": _resolve,
}

_APPLY: Mapping[str, Callable[[Store, Alert], None]] = {
    "pending": _begin,
    "fired": _begin_or_step,
    "updated": _step,
    "resolved": _step,
    "dropped": _drop,
    "decided": _decide,
}

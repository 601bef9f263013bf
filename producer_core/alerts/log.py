"""The log of a store's alerts: what fires, what was, who has seen it, and what is kept quiet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from producer_core.alerts.life import Alert, Change, Key, Silence, State
from producer_core.alerts.rules import RULES

if TYPE_CHECKING:
    from producer_core.store import Store


class AlertLog:
    """The alerts of one store: what fires, what was, who has seen it, and what is kept quiet."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def record(self, changes: Iterable[Change]) -> None:
        """Writes the changes down; the same change by a second watcher adds nothing."""
        for change in changes:
            _RECORD[change.kind](self._store, change.alert)

    def firing(self) -> dict[Key, Alert]:
        return {item.key: item for item in self.list(state="firing", limit=10_000)}

    def list(
        self, *, state: State | None = None, since: float | None = None, limit: int = 100
    ) -> list[Alert]:
        """Firing ones first, then the newest. With `since`, only what fires or was resolved after it."""
        rows = self._store.rows("alerts_list", state=state, since=since, limit=limit, now=self._clock())
        return [Alert(**{name: value for name, value in row.items() if name != "alert_id"}) for row in rows]

    def acknowledge(self, alert_id: str, *, who: str, origin: str) -> bool:
        """Says that somebody looks after it; False when it is unknown or somebody already does.

        An alert that tells of a fact ends with it.
        """
        now = self._clock()
        lasting = [item for item in self.firing().values() if item.alert_id == alert_id and item.lasting]
        changed = self._store.execute("alerts_acknowledge", alert_id=alert_id, who=who, now=now) > 0
        for item in lasting if changed else ():
            _resolve(self._store, replace(item, changed_at=now))
        self._store.audit(
            who=who,
            origin=origin,
            action="acknowledge",
            selection={"alert_id": alert_id},
            count=int(changed),
            outcome="acknowledged" if changed else "unknown, or acknowledged before",
        )
        return changed

    def silence(
        self, rule: str, subject: str = "", *, until: float, who: str, why: str, origin: str
    ) -> Silence:
        """Keeps `rule` quiet until a moment; the alerts still fire and resolve, nobody is told."""
        if rule not in RULES:
            raise ValueError(f"There is no rule {rule!r}. The rules are {', '.join(sorted(RULES))}.")
        quiet = Silence(rule, subject, until, who, why, self._clock())
        self._store.execute(
            "alerts_silence", rule=rule, subject=subject, until=until, who=who, why=why, now=quiet.created_at
        )
        self._store.audit(
            who=who,
            origin=origin,
            action="silence",
            selection={"rule": rule, "subject": subject},
            count=1,
            outcome=f"silenced: {why}",
        )
        return quiet

    def silences(self) -> Sequence[Silence]:
        return [Silence(**row) for row in self._store.rows("silences", now=self._clock())]


def _fire(store: Store, item: Alert) -> None:
    store.execute("alerts_fire", **_words(item), alert_id=item.alert_id, started_at=item.started_at)


def _update(store: Store, item: Alert) -> None:
    store.execute("alerts_update", **_words(item), at=item.changed_at)


def _resolve(store: Store, item: Alert) -> None:
    store.execute("alerts_resolve", rule=item.rule, subject=item.subject, at=item.changed_at)


def _words(item: Alert) -> dict[str, Any]:
    names = ("rule", "subject", "severity", "value", "threshold", "text", "advice")
    return {name: getattr(item, name) for name in names}


_RECORD: Mapping[str, Callable[[Store, Alert], None]] = {
    "fired": _fire,
    "updated": _update,
    "resolved": _resolve,
}

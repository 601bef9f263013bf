"""An alert: one episode of a rule and a subject, that fires once and resolves once."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from producer_core.events import Severity

if TYPE_CHECKING:
    from producer_core.store import Store

State = Literal["firing", "resolved"]
Key = tuple[str, str]
"""Rule and subject: what makes two findings the same alert."""

GONE_AFTER = 40.0
"""Seconds without a sign of life after which a producer that was not closed counts as gone."""

FORGOTTEN_AFTER = 24 * 3600.0
"""Seconds after which a gone producer is history, no longer an alert."""

LEASE = 15.0


@dataclass(frozen=True, slots=True)
class Rule:
    """How an alert of this kind is worded; `text` is a format string over value, threshold and details."""

    severity: Severity
    text: str
    advice: str


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "high_error_rate": Rule(
            "critical",
            "{value:.1%} of the messages fail; the limit is {threshold:.1%}",
            "Open the errors by topic: one group of dead letters usually names the cause. Replay when it is gone.",
        ),
        "high_latency": Rule(
            "warning",
            "Messages take {value:.0f} ms on average; the limit is {threshold:.0f} ms",
            "Look at the brokers' load and at linger_ms; a full queue adds its waiting time.",
        ),
        "high_dlq_size": Rule(
            "warning",
            "{value:,.0f} dead letters wait; the limit is {threshold:,.0f}",
            "Look at the groups of dead letters, mend the cause, then replay or archive them.",
        ),
        "high_memory_usage": Rule(
            "warning",
            "The process uses {value:.0%} of its memory; the limit is {threshold:.0%}",
            "Lower buffer_memory, or find what keeps messages waiting: often a broker that is away.",
        ),
        "connection_lost": Rule(
            "critical",
            "No connection to the brokers: {reason}",
            "Check the address, the network and the credentials; messages wait until their delivery timeout.",
        ),
        "store_unavailable": Rule(
            "critical",
            "The store cannot be written: {reason}",
            "Producing goes on and dead letters are spilled beside the store; free the disk or the lock.",
        ),
        "dedup_degraded": Rule(
            "warning",
            "De-duplication does not answer: {reason}",
            "Messages are sent without the check until it is back; start Redis or check its address.",
        ),
        "fatal_error": Rule(
            "critical",
            "The client stopped for good: {reason}",
            "The client is made anew; if this returns, the message says what the broker objects to.",
        ),
        "producer_gone": Rule(
            "critical",
            "{client} has given no sign of life since {seen} UTC and was not closed; {pending} of its messages "
            "were unsettled",
            "Look at the process on its host. What it had not written down is lost unless it has a journal.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Alert:
    """One episode. `subject` is what it is about (a producer's id, a topic, the store's path)."""

    rule: str
    severity: Severity
    subject: str
    value: float | None
    threshold: float | None
    text: str
    advice: str
    started_at: float
    changed_at: float
    state: State = "firing"
    resolved_at: float | None = None
    acknowledged_by: str | None = None
    acknowledged_at: float | None = None
    silenced: bool = False

    @property
    def key(self) -> Key:
        return self.rule, self.subject

    @property
    def alert_id(self) -> str:
        """Stable for the episode: 12 hex digits of rule, subject and start."""
        return hashlib.sha256(f"{self.rule}\0{self.subject}\0{self.started_at:.3f}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of an alert. People are told of `fired` and `resolved`; `updated` is only written down."""

    kind: Literal["fired", "updated", "resolved"]
    alert: Alert


@dataclass(frozen=True, slots=True)
class Silence:
    """Keeps a rule quiet until a moment; an empty subject means all of them."""

    rule: str
    subject: str
    until: float
    who: str
    why: str
    created_at: float


def alert(
    rule: str,
    subject: str,
    now: float,
    *,
    value: float | None = None,
    threshold: float | None = None,
    **details: Any,
) -> Alert:
    """A finding in the words of its rule; `details` fill the rule's text."""
    words = RULES[rule]
    text = words.text.format(value=value, threshold=threshold, **details)
    return Alert(rule, words.severity, subject, value, threshold, text, words.advice, now, now)


def follow(firing: Mapping[Key, Alert], found: Sequence[Alert], now: float) -> list[Change]:
    """The changes from what fires to what is found now: each alert fires once and resolves once."""
    current = {finding.key: finding for finding in found}
    changes = []
    for key, finding in current.items():
        if (known := firing.get(key)) is None:
            changes.append(Change("fired", finding))
        elif (updated := _taken_over(known, finding, now)) != known:
            changes.append(Change("updated", updated))
    for key, known in firing.items():
        if key not in current:
            changes.append(
                Change("resolved", replace(known, state="resolved", changed_at=now, resolved_at=now))
            )
    return changes


def after(firing: Mapping[Key, Alert], changes: Iterable[Change]) -> dict[Key, Alert]:
    """What fires once the changes have happened."""
    result = dict(firing)
    for change in changes:
        if change.kind == "resolved":
            result.pop(change.alert.key, None)
        else:
            result[change.alert.key] = change.alert
    return result


def _taken_over(known: Alert, finding: Alert, now: float) -> Alert:
    fresh = replace(
        known,
        severity=finding.severity,
        value=finding.value,
        threshold=finding.threshold,
        text=finding.text,
        advice=finding.advice,
    )
    return known if fresh == known else replace(fresh, changed_at=now)


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
        """Says that somebody looks after it; False when it is unknown or somebody already does."""
        now = self._clock()
        changed = self._store.execute("alerts_acknowledge", alert_id=alert_id, who=who, now=now) > 0
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


def this_process() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"


def evaluate_store(store: Store, now: float, *, owner: str | None = None) -> list[Change]:
    """Notices producers that died, in whichever process holds the lease; [] in every other one.

    Call it every few seconds from any process that has the store; one of them does the work.
    """
    if not _leads(store, now, owner or this_process()):
        return []
    log = AlertLog(store, clock=lambda: now)
    firing = {key: item for key, item in log.firing().items() if item.rule == "producer_gone"}
    changes = follow(firing, _gone(store, now), now)
    log.record(changes)
    return changes


def _leads(store: Store, now: float, owner: str) -> bool:
    """The lease, looked at before it is written: a second of leading or following costs one read."""
    for held in store.rows("alerts_lease_holder", now=now):
        if held["owner"] != owner or held["lease_until"] - now > LEASE / 2:
            return bool(held["owner"] == owner)
    return store.take_lease("alerts", owner, LEASE, now)


def _gone(store: Store, now: float) -> list[Alert]:
    rows = store.rows("alerts_gone_producers", silent_since=now - GONE_AFTER, forgotten=now - FORGOTTEN_AFTER)
    return [
        alert(
            "producer_gone",
            row["producer_id"],
            now,
            threshold=GONE_AFTER,
            seen=datetime.fromtimestamp(row["seen_at"], UTC).strftime("%Y-%m-%d %H:%M:%S"),
            client=f"{row['client_id']} ({row['host']}, process {row['pid']})",
            pending=row["pending"],
        )
        for row in rows
    ]

"""An alert: one episode of a rule and a subject, that fires once and resolves once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from producer_core._internal.masking import mask_or_hide
from producer_core.alerts.rules import RULES, AlertRule
from producer_core.events import Severity

State = Literal["pending", "firing", "resolved"]
Key = tuple[str, str]
"""Rule and subject: what makes two findings the same alert."""

WORDS_EVERY = 15.0
"""Seconds between two changes of an evaluated alert's words; a change of its severity is written at once."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One episode. `subject` is what it is about (a producer's id, a topic, the store's path).

    `fired_at` is None while it is pending. `since`: of a pending one when its condition began, of a firing one when
    its condition ended, None while it holds. `told_by`: the producer that says so; None for an evaluated rule.
    `muted_by` says why nobody is told. `telling`: whether people are told that it began, `telling_end` that it ended;
    None while that is open.
    """

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
    fired_at: float | None = None
    since: float | None = None
    told_by: str | None = None
    muted_by: str | None = None
    telling: Literal["begin", "joined", "none"] | None = None
    telling_end: bool | None = None

    @property
    def key(self) -> Key:
        return self.rule, self.subject

    @property
    def lasting(self) -> bool:
        """It tells of a fact: it fires until somebody acknowledges it, also after its producer is closed."""
        return self.rule in RULES and RULES[self.rule].lasting

    @property
    def alert_id(self) -> str:
        """Stable for the episode: 12 hex digits of rule, subject and start."""
        return hashlib.sha256(f"{self.rule}\0{self.subject}\0{self.started_at:.3f}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class AlertChange:
    """What became of an alert. People are told of `fired` and `resolved`; the others are only written down.

    `pending`: its condition holds, not yet for long enough; `dropped`: and then it ended, so it never was an alert.
    `decided`: whether people are told, and if not why.
    """

    kind: Literal["pending", "fired", "updated", "resolved", "dropped", "decided"]
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

    def covers(self, item: Alert, now: float) -> bool:
        return self.rule == item.rule and self.subject in ("", item.subject) and self.until > now


def alert(
    rule: str,
    subject: str,
    now: float,
    /,
    *,
    value: float | None = None,
    threshold: float | None = None,
    words: AlertRule | None = None,
    **details: Any,
) -> Alert:
    """A finding in the words of its rule; `details` fill the rule's text, masked: it goes to pages, logs and webhooks."""
    words = words or RULES[rule]
    text = mask_or_hide(
        words.text.format(value=value, threshold=threshold, **{"subject": subject, **details})
    )
    return Alert(rule, words.severity, subject, value, threshold, text, words.advice, now, now, fired_at=now)


def follow(firing: Mapping[Key, Alert], found: Sequence[Alert], now: float) -> list[AlertChange]:
    """The changes from what fires to what is found now: each alert fires once and resolves once."""
    current = {finding.key: finding for finding in found}
    changes = []
    for key, finding in current.items():
        if (known := firing.get(key)) is None:
            changes.append(AlertChange("fired", finding))
        elif (updated := _taken_over(known, finding, now)) != known:
            changes.append(AlertChange("updated", updated))
    return changes + [
        AlertChange("resolved", resolved(firing[key], now)) for key in firing if key not in current
    ]


def advance(
    rules: Mapping[str, AlertRule], known: Mapping[Key, Alert], found: Iterable[Alert], now: float
) -> list[AlertChange]:
    """The next step of evaluated alerts: pending until `for_` is over, firing until `keep_firing_for` is.

    Both run from the first evaluation that saw the change. A moment that lies ahead of `now` (the clock was set
    back) counts as now, so that nothing waits longer than its rule says twice over.
    """
    current = {finding.key: finding for finding in found}
    steps = [_seen(rules[finding.rule], known.get(key), finding, now) for key, finding in current.items()]
    steps += [_unseen(rules.get(key[0]), item, now) for key, item in known.items() if key not in current]
    return [step for step in steps if step is not None]


def after(firing: Mapping[Key, Alert], changes: Iterable[AlertChange]) -> dict[Key, Alert]:
    """What fires once the changes have happened."""
    result = dict(firing)
    for change in changes:
        if change.kind in ("resolved", "dropped"):
            result.pop(change.alert.key, None)
        else:
            result[change.alert.key] = change.alert
    return result


def resolved(item: Alert, now: float) -> Alert:
    return replace(item, state="resolved", changed_at=now, resolved_at=now, since=None)


def _seen(rule: AlertRule, known: Alert | None, finding: Alert, now: float) -> AlertChange | None:
    if known is None:
        if rule.for_ <= 0:
            return AlertChange("fired", finding)
        return AlertChange("pending", replace(finding, state="pending", fired_at=None, since=now))
    updated = _taken_over(known, finding, now, words_every=WORDS_EVERY)
    if known.state == "pending":
        since = min(now if known.since is None else known.since, now)
        if now - since >= rule.for_:
            return AlertChange("fired", _fired(known, finding, now))
        return AlertChange("updated", replace(updated, since=since)) if since != known.since else None
    if known.since is not None:
        return AlertChange("updated", replace(updated, since=None, changed_at=now))
    return AlertChange("updated", updated) if updated != known else None


def _unseen(rule: AlertRule | None, known: Alert, now: float) -> AlertChange | None:
    if known.state == "pending":
        return AlertChange("dropped", known)
    since = now if known.since is None else min(known.since, now)
    if rule is None or now - since >= rule.keep_firing_for:
        return AlertChange("resolved", resolved(known, now))
    return AlertChange("updated", replace(known, since=since)) if since != known.since else None


def _fired(known: Alert, finding: Alert, now: float) -> Alert:
    return replace(finding, started_at=known.started_at, fired_at=now, changed_at=now)


def _taken_over(known: Alert, finding: Alert, now: float, *, words_every: float = 0.0) -> Alert:
    if known.severity == finding.severity and 0 <= now - known.changed_at < words_every:
        return known
    fresh = replace(
        known,
        severity=finding.severity,
        value=finding.value,
        threshold=finding.threshold,
        text=finding.text,
        advice=finding.advice,
    )
    return known if fresh == known else replace(fresh, changed_at=now)

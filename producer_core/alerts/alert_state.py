"""The state of an alert: one episode of a rule and a subject, which fires once and resolves once."""

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
"""Rule and subject. Two findings with the same key are the same alert."""

TEXT_INTERVAL = 15.0
"""Seconds between two updates of an evaluated alert's text. A change of its severity is stored at once."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One episode of an alert. `subject` is the producer's id, the topic or the store's path.

    `fired_at` is None while the alert is pending. `since` is the time at which the condition of a pending alert began,
    or at which the condition of a firing alert ended; None while it holds. `told_by` is the id of the producer that
    reports the alert; None for an evaluated rule. `muted_by` is the reason why no notification is sent. `telling`
    is the decision about the notification when the alert fires, `telling_end` the one when it is resolved; None is
    undecided.
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
        """Return whether it fires until it is acknowledged, even after its producer is closed."""
        return self.rule in RULES and RULES[self.rule].lasting

    @property
    def alert_id(self) -> str:
        """Return the id of the episode: 12 hex digits derived from rule, subject and start."""
        return episode_id(self.rule, self.subject, self.started_at)


def episode_id(rule: str, subject: str, started_at: float) -> str:
    """Return the id of an alert's episode."""
    return hashlib.sha256(f"{rule}\0{subject}\0{started_at:.3f}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class AlertChange:
    """A change of an alert. `fired` and `resolved` cause notifications; the others are only stored.

    `pending`: the condition holds, but not long enough yet. `dropped`: the condition ended while the alert was
    pending. `decided`: the decision about notifications changed.
    """

    kind: Literal["pending", "fired", "updated", "resolved", "dropped", "decided"]
    alert: Alert


@dataclass(frozen=True, slots=True)
class Silence:
    """Suppresses the notifications of a rule until a given time. An empty subject covers every subject."""

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
    definition: AlertRule | None = None,
    **details: Any,
) -> Alert:
    """Return a finding with the rule's text, which `details` fill in. Secrets are masked for pages, logs and webhooks."""
    definition = definition or RULES[rule]
    values = {"value": value, "threshold": threshold, "subject": subject, **details}
    text = mask_or_hide(definition.text.format(**values))
    return Alert(
        rule, definition.severity, subject, value, threshold, text, definition.advice, now, now, fired_at=now
    )


def follow(firing: Mapping[Key, Alert], found: Sequence[Alert], now: float) -> list[AlertChange]:
    """Return the changes from the firing alerts to the current findings. Each alert fires once and resolves once."""
    current = {finding.key: finding for finding in found}
    changes = []
    for key, finding in current.items():
        if (known := firing.get(key)) is None:
            changes.append(AlertChange("fired", finding))
        elif (updated := _updated(known, finding, now)) != known:
            changes.append(AlertChange("updated", updated))
    return changes + [
        AlertChange("resolved", resolved(firing[key], now)) for key in firing if key not in current
    ]


def advance(
    rules: Mapping[str, AlertRule], known: Mapping[Key, Alert], found: Iterable[Alert], now: float
) -> list[AlertChange]:
    """Return the next changes of evaluated alerts: pending for `for_`, then firing until `keep_firing_for` is over.

    Both delays start at the first evaluation that sees the change. A time after `now` (the clock was set back) counts
    as now, so no alert waits longer than twice its delay.
    """
    current = {finding.key: finding for finding in found}
    steps = [
        _while_true(rules[finding.rule], known.get(key), finding, now) for key, finding in current.items()
    ]
    steps += [_while_false(rules.get(key[0]), item, now) for key, item in known.items() if key not in current]
    return [step for step in steps if step is not None]


def after(firing: Mapping[Key, Alert], changes: Iterable[AlertChange]) -> dict[Key, Alert]:
    """Return the firing alerts after the changes."""
    result = dict(firing)
    for change in changes:
        if change.kind in ("resolved", "dropped"):
            result.pop(change.alert.key, None)
        else:
            result[change.alert.key] = change.alert
    return result


def resolved(item: Alert, now: float) -> Alert:
    return replace(item, state="resolved", changed_at=now, resolved_at=now, since=None)


def _while_true(rule: AlertRule, known: Alert | None, finding: Alert, now: float) -> AlertChange | None:
    if known is None:
        if rule.for_ <= 0:
            return AlertChange("fired", finding)
        return AlertChange("pending", replace(finding, state="pending", fired_at=None, since=now))
    updated = _updated(known, finding, now, interval=TEXT_INTERVAL)
    if known.state == "pending":
        since = min(now if known.since is None else known.since, now)
        if now - since >= rule.for_:
            return AlertChange("fired", _fired(known, finding, now))
        return AlertChange("updated", replace(updated, since=since)) if since != known.since else None
    if known.since is not None:
        return AlertChange("updated", replace(updated, since=None, changed_at=now))
    return AlertChange("updated", updated) if updated != known else None


def _while_false(rule: AlertRule | None, known: Alert, now: float) -> AlertChange | None:
    if known.state == "pending":
        return AlertChange("dropped", known)
    since = now if known.since is None else min(known.since, now)
    if rule is None or now - since >= rule.keep_firing_for:
        return AlertChange("resolved", resolved(known, now))
    return AlertChange("updated", replace(known, since=since)) if since != known.since else None


def _fired(known: Alert, finding: Alert, now: float) -> Alert:
    return replace(finding, started_at=known.started_at, fired_at=now, changed_at=now)


def _updated(known: Alert, finding: Alert, now: float, *, interval: float = 0.0) -> Alert:
    if known.severity == finding.severity and 0 <= now - known.changed_at < interval:
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

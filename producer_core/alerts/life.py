"""An alert: one episode of a rule and a subject, that fires once and resolves once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from producer_core.alerts.rules import RULES
from producer_core.events import Severity

State = Literal["firing", "resolved"]
Key = tuple[str, str]
"""Rule and subject: what makes two findings the same alert."""


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
    def lasting(self) -> bool:
        """It tells of a fact: it fires until somebody acknowledges it, also after its producer is closed."""
        return self.rule in RULES and RULES[self.rule].lasting

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

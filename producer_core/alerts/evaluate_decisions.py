"""The evaluation of the rules about decisions on dead letters: objectives, and resolved causes that are back."""

from __future__ import annotations

from collections.abc import Iterator

from producer_core._internal.plural import plural
from producer_core._internal.time_span import exact_span
from producer_core._internal.utc_time import utc_minute
from producer_core.alerts.alert_state import Alert, alert
from producer_core.alerts.conditions import CauseReturned, ObjectiveBurn, ObjectiveMissed
from producer_core.alerts.rules import AlertRule
from producer_core.alerts.snapshot import DecisionCounts, StoreSnapshot


def missed(
    name: str, rule: AlertRule, condition: ObjectiveMissed, snapshot: StoreSnapshot
) -> Iterator[Alert]:
    """Yield the topics that miss their objective while dead letters are past their deadline."""
    for one in snapshot.decisions:
        if one.missed > one.objective.budget * one.evaluated and one.overdue >= condition.min_overdue:
            yield _alert(name, rule, one, snapshot.now, one.missed / one.evaluated, one.objective.budget)


def burn(name: str, rule: AlertRule, condition: ObjectiveBurn, snapshot: StoreSnapshot) -> Iterator[Alert]:
    """Yield the topics whose next deadlines, with the latest missed ones, use too much of the budget."""
    for one in snapshot.decisions:
        budget = one.objective.budget * (one.evaluated + one.due)
        if one.due and one.missed_lately + one.due >= condition.used * budget:
            used = (one.missed_lately + one.due) / budget
            yield _alert(name, rule, one, snapshot.now, used, condition.used)


def returned(
    name: str, rule: AlertRule, condition: CauseReturned, snapshot: StoreSnapshot
) -> Iterator[Alert]:
    """Yield the causes that are back. The subject is the first topic, followed by the group."""
    for one in snapshot.returned:
        if one.pending >= condition.min_pending:
            yield alert(
                name,
                f"{one.topic}/{one.fingerprint}",
                snapshot.now,
                definition=rule,
                value=one.pending,
                threshold=condition.min_pending,
                topic=one.topic,
                group=one.fingerprint,
                code=one.code,
                since=f"since version {one.version}" if one.version else f"since {utc_minute(one.back_at)}",
                who=one.resolved_by,
                resolved=utc_minute(one.resolved_at),
                count=plural(one.pending, "dead letter"),
            )


def _alert(
    name: str, rule: AlertRule, one: DecisionCounts, now: float, value: float, threshold: float
) -> Alert:
    met = (one.evaluated - one.missed) / one.evaluated if one.evaluated else None
    return alert(
        name,
        one.topic,
        now,
        definition=rule,
        value=value,
        threshold=threshold,
        objective=str(one.objective),
        within=exact_span(one.objective.within),
        met="none yet" if met is None else f"{met:.2%}",
        overdue=plural(one.overdue, "dead letter"),
        due=plural(one.due, "dead letter"),
        first="-" if one.next_at is None else utc_minute(one.next_at),
    )

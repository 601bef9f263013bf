"""One evaluation as a pure function: rules, a snapshot and the open alerts give the changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from producer_core.alerts.alert_state import Alert, AlertChange, advance, resolved
from producer_core.alerts.conditions import ReportedByProducer
from producer_core.alerts.evaluate_rules import evaluate_rules, lacks_data
from producer_core.alerts.notify_policy import by_key, decide, is_orphaned
from producer_core.alerts.rules import AlertRule
from producer_core.alerts.snapshot import StoreSnapshot


def evaluate(
    rules: Mapping[str, AlertRule], snapshot: StoreSnapshot, known: Iterable[Alert]
) -> list[AlertChange]:
    """Return the changes at `snapshot.now`, in the order in which they must be stored.

    `known` contains the alerts that are pending or firing, and the resolved ones without a decision about their
    notification. A producer ends the alerts that it reports; here they end only when the producer is closed or gone.
    """
    known = tuple(known)
    own = {
        key: item
        for key, item in by_key(known).items()
        if _is_evaluated(rules, item) and not _has_no_data(rules, item, snapshot)
    }
    steps = advance(rules, own, evaluate_rules(rules, snapshot), snapshot.now)
    steps += [
        AlertChange("resolved", resolved(item, snapshot.now))
        for item in known
        if not _is_evaluated(rules, item) and is_orphaned(snapshot, item)
    ]
    return steps + decide(rules, _after(known, steps), snapshot)


def _after(known: Iterable[Alert], steps: Iterable[AlertChange]) -> list[Alert]:
    """Return all alerts after the steps. Resolved episodes stay, because a notification may be due."""
    items = {item.alert_id: item for item in known}
    for step in steps:
        if step.kind == "dropped":
            items.pop(step.alert.alert_id, None)
        else:
            items[step.alert.alert_id] = step.alert
    return list(items.values())


def _is_evaluated(rules: Mapping[str, AlertRule], item: Alert) -> bool:
    rule = rules.get(item.rule)
    return item.told_by is None if rule is None else not isinstance(rule.condition, ReportedByProducer)


def _has_no_data(rules: Mapping[str, AlertRule], item: Alert, snapshot: StoreSnapshot) -> bool:
    rule = rules.get(item.rule)
    return rule is not None and rule.enabled and lacks_data(rule, snapshot)

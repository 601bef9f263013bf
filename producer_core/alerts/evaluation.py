"""An evaluation: from rules, a reading and what is known to what changes, without a clock and without a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from producer_core.alerts.alert_state import Alert, AlertChange, advance, resolved
from producer_core.alerts.conditions import ReportedByProducer
from producer_core.alerts.evaluate_rules import judge, unreadable
from producer_core.alerts.notify_policy import by_key, decide, told_of_nothing_more
from producer_core.alerts.rules import AlertRule
from producer_core.alerts.snapshot import StoreSnapshot


def evaluate(
    rules: Mapping[str, AlertRule], reading: StoreSnapshot, known: Iterable[Alert]
) -> list[AlertChange]:
    """The changes at `reading.now`, in the order they have to be written.

    `known` are the alerts that pend or fire, and those that ended without a decision about telling people. Alerts
    that producers tell of end by what the producer says; here they end only when it can say nothing more.
    """
    known = tuple(known)
    own = {
        key: item
        for key, item in by_key(known).items()
        if _evaluated(rules, item) and not _unclear(rules, item, reading)
    }
    steps = advance(rules, own, judge(rules, reading), reading.now)
    steps += [
        AlertChange("resolved", resolved(item, reading.now))
        for item in known
        if not _evaluated(rules, item) and told_of_nothing_more(reading, item)
    ]
    return steps + decide(rules, _after(known, steps), reading)


def _after(known: Iterable[Alert], steps: Iterable[AlertChange]) -> list[Alert]:
    """All alerts once the steps are taken; an episode that ended stays, for people may have to be told."""
    items = {item.alert_id: item for item in known}
    for step in steps:
        if step.kind == "dropped":
            items.pop(step.alert.alert_id, None)
        else:
            items[step.alert.alert_id] = step.alert
    return list(items.values())


def _evaluated(rules: Mapping[str, AlertRule], item: Alert) -> bool:
    rule = rules.get(item.rule)
    return item.told_by is None if rule is None else not isinstance(rule.condition, ReportedByProducer)


def _unclear(rules: Mapping[str, AlertRule], item: Alert, reading: StoreSnapshot) -> bool:
    rule = rules.get(item.rule)
    return rule is not None and rule.enabled and unreadable(rule, reading)

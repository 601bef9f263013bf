"""Select the alerts that the overview shows, each once, most urgent first."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from producer_core.alerts.alert_groups import GROUPED_RULES, merged_row
from producer_core.alerts.conditions import (
    Absence,
    BurnRate,
    CauseReturned,
    ObjectiveBurn,
    ObjectiveMissed,
    Threshold,
)
from producer_core.alerts.notify_policy import shared_duplicates
from producer_core.alerts.rules import RULES, AlertRule
from producer_core.dashboard.queries.situation import Rows
from producer_core.dashboard.queries.urgency import Urgency, urgency_of
from producer_core.dashboard.queries.view import View

_TRAILING_RULES = ("error_budget_fast", "error_budget_slow", "dead_letters_growing")
"""Rules over a topic's last minutes or hours; they keep firing after the fault is over."""


def firing(
    alerts: Rows, dead: int, recovered: Collection[str], view: View, rules: Mapping[str, AlertRule]
) -> tuple[Mapping[str, Any], ...]:
    """Return the alerts that are not suppressed.

    Alerts of several producers with the same text are merged, and so are those of a rule about many topics, with all ids
    in `alert_ids`. `dead` counts all pending dead letters. `recovered` names the topics that deliver again; trailing rules
    about them are marked. `rules` are the active rules, whose `keep_firing_for` is the time that an alert fires after its
    condition clears.
    """
    loud = [
        {
            **row,
            "recovered": row["rule"] in _TRAILING_RULES and row["subject"] in recovered,
            "keep_firing_for": rules[row["rule"]].keep_firing_for if row["rule"] in rules else 0.0,
        }
        for row in _deduplicated(alerts, rules)
        if not (row["silenced"] or row["muted_by"])
    ]
    lines: dict[Hashable, list[Mapping[str, Any]]] = {}
    for row in sorted(loud, key=_sort_key):
        lines.setdefault(_line(row, rules), []).append(row)
    return tuple(_with_current_count(_merged(rows), dead, view) for rows in lines.values())


def _line(row: Mapping[str, Any], rules: Mapping[str, AlertRule]) -> Hashable:
    """Return what the alerts of one line have in common."""
    rule, is_open = row["rule"], row["acknowledged_by"] is None
    if rule in GROUPED_RULES:
        return rule, is_open, row["since"] is None
    topic = row["subject"] if _is_per_topic(rules.get(rule)) else ""  # the text may not name it
    return rule, topic, row["text"], is_open


def _merged(rows: Rows) -> Mapping[str, Any]:
    return {**merged_row(rows), "alert_ids": tuple(row["alert_id"] for row in rows)}


def _sort_key(row: Mapping[str, Any]) -> tuple[bool, Urgency]:
    return row["recovered"], urgency_of(row)


def _is_per_topic(rule: AlertRule | None) -> bool:
    match rule.condition if rule else None:
        case Threshold(by=by) | BurnRate(by=by):
            return by == "topic"
        case Absence(of=of):
            return of == "traffic"
        case ObjectiveMissed() | ObjectiveBurn() | CauseReturned():
            return True
        case _:
            return False


def _deduplicated(alerts: Rows, rules: Mapping[str, AlertRule]) -> Rows:
    """Keep the first alert where several producers report the same store-wide alert."""
    repeated = shared_duplicates(rules, ((row["rule"], row["started_at"], row["alert_id"]) for row in alerts))
    return [row for row in alerts if row["alert_id"] not in repeated]


def _with_current_count(alert: Mapping[str, Any], dead: int, view: View) -> Mapping[str, Any]:
    """Put the page's own count of dead letters into the alert, because producers count only every few seconds."""
    narrowed = any(value is not None for value in view.where.values())
    if narrowed or alert["rule"] != "high_dlq_size" or dead <= alert["threshold"]:
        return alert
    text = RULES["high_dlq_size"].text.format(value=dead, threshold=alert["threshold"])
    return {**alert, "value": float(dead), "text": text}

"""The alerts that the overview shows: each once, and what one should read first in front."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from producer_core.alerts.conditions import Absence, BurnRate, Threshold
from producer_core.alerts.notify_policy import shared_duplicates
from producer_core.alerts.rules import RULES, AlertRule
from producer_core.dashboard.queries.situation import Rows
from producer_core.dashboard.queries.urgency import Urgency, urgency_of
from producer_core.dashboard.queries.view import View

_LOOK_BACK = ("error_budget_fast", "error_budget_slow", "dead_letters_growing")
"""Rules over a topic's last minutes or hours: they fire on after the fault is over."""


def firing(
    alerts: Rows, dead: int, recovered: Collection[str], view: View, rules: Mapping[str, AlertRule]
) -> tuple[Mapping[str, Any], ...]:
    """Those that nothing keeps quiet; `dead` dead letters wait in all. What several producers say in the same words is one, with
    all its ids in `alert_ids`. `recovered` topics deliver again: what only looks back on them is marked so.
    `rules` are those in force: `keep_firing_for` says how long each fires on once its condition is over.
    """
    loud = [
        {
            **row,
            "recovered": row["rule"] in _LOOK_BACK and row["subject"] in recovered,
            "keep_firing_for": rules[row["rule"]].keep_firing_for if row["rule"] in rules else 0.0,
        }
        for row in _once(alerts, rules)
        if not (row["silenced"] or row["muted_by"])
    ]
    alike: dict[tuple[str, str, str, bool], dict[str, Any]] = {}
    for row in sorted(loud, key=_place):
        topic = row["subject"] if _of_a_topic(rules.get(row["rule"])) else ""  # its words need not name it
        key = row["rule"], topic, row["text"], row["acknowledged_by"] is None
        first = alike.setdefault(key, {**row, "alert_ids": ()})
        first["alert_ids"] = (*first["alert_ids"], row["alert_id"])
    return tuple(_as_shown(row, dead, view) for row in alike.values())


def _place(row: Mapping[str, Any]) -> tuple[bool, Urgency]:
    return row["recovered"], urgency_of(row)


def _of_a_topic(rule: AlertRule | None) -> bool:
    match rule.condition if rule else None:
        case Threshold(by=by) | BurnRate(by=by):
            return by == "topic"
        case Absence(of=of):
            return of == "traffic"
        case _:
            return False


def _once(alerts: Rows, rules: Mapping[str, AlertRule]) -> Rows:
    """What several producers say of one store is one alert to a reader: that of the first."""
    twice = shared_duplicates(rules, ((row["rule"], row["started_at"], row["alert_id"]) for row in alerts))
    return [row for row in alerts if row["alert_id"] not in twice]


def _as_shown(alert: Mapping[str, Any], dead: int, view: View) -> Mapping[str, Any]:
    """The alert with the number of dead letters that the page shows beside it; a producer counts every few seconds."""
    narrowed = view.topic is not None or view.producer is not None
    if narrowed or alert["rule"] != "high_dlq_size" or dead <= alert["threshold"]:
        return alert
    text = RULES["high_dlq_size"].text.format(value=dead, threshold=alert["threshold"])
    return {**alert, "value": float(dead), "text": text}

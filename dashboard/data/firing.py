"""The alerts that the overview shows: each once, and what one should read first in front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.data.situation import Rows
from dashboard.data.urgency import urgency_of
from dashboard.data.view import View
from producer_core.alerts.rules import RULES


def firing(alerts: Rows, dead: int, view: View) -> tuple[Mapping[str, Any], ...]:
    """Those that nothing keeps quiet; `dead` letters wait in all."""
    loud = [row for row in _once(alerts) if not (row["silenced"] or row["muted_by"])]
    return tuple(_as_shown(row, dead, view) for row in sorted(loud, key=urgency_of))


def _once(alerts: Rows) -> Rows:
    """What several producers say of one store is one alert to a reader: that of the first."""
    first: dict[str, Mapping[str, Any]] = {}
    for row in sorted(alerts, key=lambda one: (one["started_at"], one["alert_id"])):
        first.setdefault(row["rule"], row)
    return [
        row
        for row in alerts
        if row["alert_id"] == first[row["rule"]]["alert_id"]
        or row["rule"] not in RULES
        or not RULES[row["rule"]].shared
    ]


def _as_shown(alert: Mapping[str, Any], dead: int, view: View) -> Mapping[str, Any]:
    """The alert with the number of dead letters that the page shows beside it; a producer counts every few seconds."""
    narrowed = view.topic is not None or view.producer is not None
    if narrowed or alert["rule"] != "high_dlq_size" or dead <= alert["threshold"]:
        return alert
    text = RULES["high_dlq_size"].text.format(value=dead, threshold=alert["threshold"])
    return {**alert, "value": float(dead), "text": text}

"""Order alerts by urgency."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from producer_core.alerts.rules import RULES

_SEVERITIES = ("critical", "warning", "info")

Urgency = tuple[bool, bool, bool, int, int, float]


def urgency(
    rule: str, severity: str, started_at: float, *, acknowledged: bool, suppressed: bool, cleared: bool
) -> Urgency:
    """Return the sort key of an alert, most urgent first.

    Alerts that are suppressed, acknowledged or `cleared` (about to resolve) come last. The others are ordered by
    severity. Within a severity an alert precedes those that follow from it, so a lost broker precedes the topics that
    fail because of it. The newest comes first among the rest.
    """
    severity_rank = _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)
    return suppressed, acknowledged, cleared, severity_rank, -len(explained(rule)), -started_at


def urgency_of(row: Mapping[str, Any]) -> Urgency:
    """Return the sort key of a row of the store."""
    return urgency(
        row["rule"],
        row["severity"],
        row["started_at"],
        acknowledged=row["acknowledged_by"] is not None,
        suppressed=bool(row["silenced"] or row["muted_by"]),
        cleared=row["since"] is not None,
    )


@cache
def explained(rule: str) -> frozenset[str]:
    """Return the rules whose alerts may follow from an alert of this rule, directly or transitively."""
    found, open_ = set[str](), [rule]
    while open_:
        name = open_.pop()
        new = set(RULES[name].inhibits) - found if name in RULES else set[str]()
        found |= new
        open_ += new
    return frozenset(found)

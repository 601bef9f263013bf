"""The urgency of an alert: which of those that fire somebody should read first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from producer_core.alerts.rules import RULES

_SEVERITIES = ("critical", "warning", "info")

Urgency = tuple[bool, bool, bool, int, int, float]


def urgency(
    rule: str, severity: str, started_at: float, *, looked_after: bool, quiet: bool, over: bool
) -> Urgency:
    """What to sort by. First what nobody looks after, nothing keeps quiet, and is not `over` and about to resolve; then
    the worst; of these what explains others before what follows from it, so that a broker that is gone stands over the
    topics that fail for it; then the newest.
    """
    worst = _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)
    return quiet, looked_after, over, worst, -len(explained(rule)), -started_at


def urgency_of(row: Mapping[str, Any]) -> Urgency:
    """Of a row of the store."""
    return urgency(
        row["rule"],
        row["severity"],
        row["started_at"],
        looked_after=row["acknowledged_by"] is not None,
        quiet=bool(row["silenced"] or row["muted_by"]),
        over=row["since"] is not None,
    )


@cache
def explained(rule: str) -> frozenset[str]:
    """The rules whose alerts may follow from one of this rule, directly or through others."""
    found, open_ = set[str](), [rule]
    while open_:
        name = open_.pop()
        new = set(RULES[name].inhibits) - found if name in RULES else set[str]()
        found |= new
        open_ += new
    return frozenset(found)

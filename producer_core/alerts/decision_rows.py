"""Read the rows of the queries about decisions on dead letters: objectives, and resolved causes that are back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core._internal.decision_objective import (
    AHEAD,
    PERIOD,
    DecisionObjective,
    as_parameters,
    objective_for,
    objectives_of,
)
from producer_core.alerts.snapshot import DecisionCounts, ReturnedCause
from producer_core.errors import ConfigError
from producer_core.events import SAFE_VERDICTS

if TYPE_CHECKING:
    from producer_core.store import Store

Row = Mapping[str, Any]

_COUNTED = ("evaluated", "missed", "missed_lately", "overdue", "due", "next_at")


def objectives(store: Store) -> Mapping[str, DecisionObjective]:
    """Return the objectives; none if another version wrote them in a form that this one does not know."""
    try:
        return objectives_of(store.settings())
    except ConfigError:
        return {}


def parameters(
    known: Mapping[str, DecisionObjective], now: float, removed: Sequence[str]
) -> Mapping[str, Any]:
    """Return the parameters of `decision_report` for the period that ends now, without the quantiles: no rule has one."""
    return {
        "now": now,
        "since": now - PERIOD,
        "until": now,
        "ahead": AHEAD,
        "quantiles": False,
        "safe": sorted(SAFE_VERDICTS),
        "removed": removed,
        **as_parameters(known),
    }


def decisions(rows: Iterable[Row], known: Mapping[str, DecisionObjective]) -> Iterable[DecisionCounts]:
    """Yield the topics that have an objective."""
    for row in rows:
        if (objective := objective_for(known, row["topic"])) is not None:
            yield DecisionCounts(row["topic"], objective, **{name: row[name] for name in _COUNTED})


def returned(rows: Iterable[Row]) -> Iterable[ReturnedCause]:
    """Yield the causes that are back since their latest resolution."""
    for row in rows:
        if row["ended_at"] is None and row["back_at"] is not None:
            yield ReturnedCause(
                fingerprint=row["fingerprint"],
                code=row["code"],
                topic=row["topics"][0],
                version=row["back_in"] or "",
                back_at=row["back_at"],
                resolved_at=row["resolved_at"],
                resolved_by=row["who"],
                pending=row["pending"],
            )

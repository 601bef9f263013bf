"""Queries for resolved alerts: repeats of one alert together, and the episodes of one alert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from producer_core.alerts import Alert
from producer_core.dashboard.queries.view import View
from producer_core.store import Store

EPISODES = 20
"""The number of episodes listed on the page of an alert."""

_ALERT = frozenset(item.name for item in fields(Alert))


@dataclass(frozen=True)
class RepeatedAlert:
    """Holds the latest resolved episode of a rule and subject, and sums over its `episodes` in the range.

    `lasted` and `longest` are the seconds for which they fired, in total and at most; `first_at` is their first start.
    """

    latest: Alert
    episodes: int = 1
    first_at: float = 0.0
    lasted: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True)
class AlertHistory:
    """Holds the resolved alerts of a range, latest first, and the number of all their episodes."""

    alerts: tuple[RepeatedAlert, ...] = ()
    total: int = 0

    @property
    def listed(self) -> int:
        return sum(one.episodes for one in self.alerts)


def alert_history(store: Store, view: View, now: float, *, limit: int) -> AlertHistory:
    rows = store.rows(
        "alerts_history", state="resolved", now=now, since=view.since(now), until=view.until(now), limit=limit, **view.where
    )  # fmt: skip
    return AlertHistory(tuple(map(_repeated, rows)), rows[0]["total"] if rows else 0)


def episodes_of(store: Store, item: Alert) -> tuple[tuple[Alert, ...], int]:
    """Return the latest episodes of the alert's rule and subject, and the number of all."""
    rows = store.rows("alerts_episodes", rule=item.rule, subject=item.subject, limit=EPISODES)
    return tuple(map(_alert, rows)), rows[0]["total"] if rows else 0


def _repeated(row: Mapping[str, Any]) -> RepeatedAlert:
    return RepeatedAlert(_alert(row), row["episodes"], row["first_at"], row["lasted"], row["longest"])


def _alert(row: Mapping[str, Any]) -> Alert:
    return Alert(**{name: value for name, value in row.items() if name in _ALERT})

"""Queries for the alerts page: firing, pending and resolved alerts, rules, silences and notification routes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from producer_core._internal.lease_watch import LEASE
from producer_core.alerts import Alert, AlertLog, AlertRule, RuleSet, Silence, rule_set_of
from producer_core.alerts.alert_groups import AlertGroup, alert_groups
from producer_core.alerts.conditions import DAY, HOUR, MINUTE, ReportedByProducer, windows_of
from producer_core.alerts.evaluate_rules import ALL_TOPICS
from producer_core.alerts.notify_policy import shared_duplicates
from producer_core.alerts.routes import NAMED, missing_addresses, routes_of
from producer_core.dashboard.queries.alert_history import AlertHistory, alert_history, episodes_of
from producer_core.dashboard.queries.replays import operations, where_of
from producer_core.dashboard.queries.urgency import Urgency, urgency
from producer_core.dashboard.queries.view import View
from producer_core.errors import ConfigError
from producer_core.replay import Operation
from producer_core.store import Store

LISTED = 200
"""The number of resolved alerts listed at once, repeats not counted."""
SHOWN = 30
"""The number of firing alerts shown as cards."""


class EvaluatorState(NamedTuple):
    """Identifies the process that evaluates alerts, and whether it is still running; `here` marks this server."""

    name: str
    alive: bool
    here: bool


class RuleFileState(NamedTuple):
    """Describes the rule file and its errors; `repeat` is the seconds between repeated notifications."""

    path: Path | None
    problem: tuple[str, ...]
    repeat: float
    link: str


@dataclass(frozen=True)
class RuleState:
    """Describes a rule, its alerts, and the silence that covers all of its subjects."""

    name: str
    rule: AlertRule
    firing: int = 0
    pending: int = 0
    episodes: int = 0
    last_at: float | None = None
    silence: Silence | None = None

    @property
    def reported(self) -> bool:
        """Return whether a producer itself reports the beginning and the end of the alert."""
        return isinstance(self.rule.condition, ReportedByProducer)


@dataclass(frozen=True)
class RouteState:
    """Describes a notification route and its deliveries.

    `source` names the origin of the URL, never the URL itself. `here` is set where this server has the URL,
    so that it can send a test.
    """

    name: str
    kind: str
    source: str
    severities: tuple[str, ...]
    here: bool
    told_at: float | None = None
    failing_since: float | None = None
    answer: str | None = None
    waiting: int = 0
    given_up: int = 0
    heartbeat: float = 0.0
    heartbeat_at: float | None = None


@dataclass(frozen=True)
class AlertsPage:
    """Holds the firing alerts by urgency, the pending ones and the resolved ones of the range, as of `now`."""

    now: float
    firing: tuple[Alert, ...]
    pending: tuple[Alert, ...]
    history: AlertHistory
    elsewhere: int
    """The number of firing alerts outside the selected topic or producer."""
    silences: tuple[Silence, ...]
    rules: tuple[RuleState, ...]
    routes: tuple[RouteState, ...]
    undelivered: tuple[Mapping[str, Any], ...]
    evaluator: EvaluatorState | None
    file: RuleFileState
    names: Mapping[str, str]
    """Producer names by producer id."""

    @property
    def shown(self) -> tuple[AlertGroup, ...]:
        """Return the firing alerts by urgency, those of a rule about many topics as one."""
        return tuple(alert_groups(self.firing, apart=self.silence_of))

    @property
    def failing(self) -> tuple[tuple[RouteState, float], ...]:
        """Return the failing routes, each with the time of its first failure."""
        return tuple((one, one.failing_since) for one in self.routes if one.failing_since is not None)

    def silence_of(self, item: Alert) -> Silence | None:
        """Return the silence that covers an alert the longest."""
        covering = [one for one in self.silences if one.covers(item, self.now)]
        return max(covering, key=lambda one: one.until, default=None)


@dataclass(frozen=True)
class AlertDetail:
    """Holds one alert with its rule, silence and notifications; `since` and `until` bound the time that it covers."""

    now: float
    alert: Alert
    rule: AlertRule | None
    silence: Silence | None
    notifications: tuple[Mapping[str, Any], ...]
    topic: str | None
    producer: str | None
    since: float
    until: float
    names: Mapping[str, str]
    episodes: tuple[Alert, ...] = ()
    """The latest episodes of the rule and subject, this one included, and `episodes_total` is the number of all."""
    episodes_total: int = 0


def alerts(store: Store, view: View, now: float) -> AlertsPage:
    """Read the alerts page from one consistent view of the store."""
    rule_set = rule_set_of(store)
    with store.borrow():
        firing = store.rows("alerts_shown", state="firing", now=now, limit=1_000, **view.where)
        pending = store.rows("alerts_shown", state="pending", now=now, limit=LISTED, **view.where)
        history = alert_history(store, view, now, limit=LISTED)
        counted = {row["rule"]: row for row in store.rows("alerts_counted")}
        silences = tuple(Silence(**row) for row in store.rows("silences", now=now))
        routes = store.rows("alert_routes")
        untold = store.rows("alerts_outbox_open", limit=50)
        evaluators = store.rows("alerts_judge")
        names = _names(store, now)
    return AlertsPage(
        now=now,
        firing=tuple(sorted(_deduplicated(rule_set, map(_alert, firing)), key=_urgency)),
        pending=tuple(map(_alert, pending)),
        history=history,
        elsewhere=sum(row["firing"] for row in counted.values()) - _total(firing),
        silences=silences,
        rules=_rules(rule_set, counted, silences),
        routes=_routes(rule_set, routes),
        undelivered=tuple(untold),
        evaluator=_evaluator(evaluators, now),
        file=RuleFileState(
            rule_set.path, tuple((rule_set.problem or "").splitlines()), rule_set.repeat, rule_set.link
        ),
        names=names,
    )


def alert_detail(store: Store, alert_id: str, now: float) -> AlertDetail | None:
    """Return one alert; None where the store has no alert of that id."""
    with store.borrow():
        found = store.rows("alerts_shown", alert_id=alert_id, now=now, limit=1)
        if not found:
            return None
        item = _alert(found[0])
        notifications = store.rows("alerts_of_outbox", alert_id=alert_id)
        topics = {row["topic"] for row in store.rows("topics")}
        silences = AlertLog(store, clock=lambda: now).silences()
        names = _names(store, now)
        rule = rule_set_of(store).rules.get(item.rule)
        episodes, episodes_total = episodes_of(store, item)
    topic = item.subject.partition("/")[0]
    about_topic = topic in topics and item.subject != ALL_TOPICS
    return AlertDetail(
        now=now,
        alert=item,
        rule=rule,
        silence=next((one for one in silences if one.covers(item, now)), None),
        notifications=tuple(notifications),
        topic=topic if about_topic else None,
        producer=_producer(item, about_topic),
        since=item.started_at - _lookback(rule),
        until=(item.resolved_at or now) + 30,
        names=names,
        episodes=episodes,
        episodes_total=episodes_total,
    )


def replays_since(store: Store, topic: str | None, since: float) -> tuple[Operation, ...]:
    """Return up to three replays created since, latest first; `topic` None means any topic."""
    found = [one for one in operations(store, limit=50) if one.created_at >= since]
    about = [
        one for one in found if (where := where_of(one.selection)) is None or where.topic in (None, topic)
    ]
    return tuple((found if topic is None else about)[:3])


def _alert(row: Mapping[str, Any]) -> Alert:
    return Alert(**{name: value for name, value in row.items() if name != "total"})


def _deduplicated(rule_set: RuleSet, items: Iterable[Alert]) -> list[Alert]:
    """Keep one alert where several producers report the same store-wide alert."""
    known = list(items)
    repeated = shared_duplicates(
        rule_set.rules, ((item.rule, item.started_at, item.alert_id) for item in known)
    )
    return [item for item in known if item.alert_id not in repeated]


def _names(store: Store, now: float) -> Mapping[str, str]:
    return {
        row["producer_id"]: f"{row['client_id'] or 'producer'} (process {row['pid']} on {row['host']})"
        for row in store.rows("producers", since=now - 30 * DAY)
    }


def _total(rows: list[dict[str, Any]]) -> int:
    return rows[0]["total"] if rows else 0


def _urgency(item: Alert) -> Urgency:
    return urgency(
        item.rule,
        item.severity,
        item.started_at,
        acknowledged=item.acknowledged_by is not None,
        suppressed=bool(item.silenced or item.muted_by),
        cleared=item.since is not None,
    )


def _rules(
    rule_set: RuleSet, counted: Mapping[str, Mapping[str, Any]], silences: Iterable[Silence]
) -> tuple[RuleState, ...]:
    """Return every rule, firing ones first and those reported by producers last."""
    silenced = {one.rule: one for one in silences if not one.subject}
    found = []
    for name, rule in rule_set.rules.items():
        row = counted.get(name, {})
        figures = {key: row.get(key) or 0 for key in ("firing", "pending", "episodes")}
        found.append(RuleState(name, rule, **figures, last_at=row.get("last_at"), silence=silenced.get(name)))
    return tuple(sorted(found, key=lambda one: (not one.firing, not one.pending, one.reported)))


def _routes(rule_set: RuleSet, rows: Iterable[Mapping[str, Any]]) -> tuple[RouteState, ...]:
    """Return the routes configured in the file or the environment of this server, and those used by other processes."""
    known = {row["name"]: row for row in rows}
    try:
        here = {route.name: route for route in routes_of(rule_set)}
        missing = {settings.name for settings in missing_addresses(rule_set)}
    except ConfigError:
        here, missing = {}, set()
    sources = {
        one.name: f"${one.url_env}" if one.url_env else f"file {one.url_file}" for one in rule_set.routes
    } | {name: f"${variable}" for name, variable in NAMED if name in here and name not in missing}
    named = {settings.name: settings for settings in rule_set.routes}
    found = []
    for name in dict.fromkeys((*here, *named, *known)):
        route, row = here.get(name), known.get(name, {})
        settings = route or named.get(name)
        found.append(
            RouteState(
                name,
                settings.kind if settings else row.get("kind", ""),
                sources.get(name, ""),
                settings.severities if settings else (),
                route is not None,
                waiting=row.get("waiting") or 0,
                given_up=row.get("given_up") or 0,
                heartbeat=settings.heartbeat if settings else 0.0,
                **{key: row.get(key) for key in ("told_at", "failing_since", "answer", "heartbeat_at")},
            )
        )
    return tuple(sorted(found, key=lambda one: one.failing_since is None))


def _evaluator(rows: list[dict[str, Any]], now: float) -> EvaluatorState | None:
    if not rows:
        return None
    row = rows[0]
    owner = str(row["owner"]).partition("/")[0]
    here = owner == f"{os.getpid()}@{socket.gethostname()}"
    pid, _, host = owner.partition("@")
    name = f"process {pid} on {host}" if host else owner
    if row["pid"] is not None:
        name = f"{row['client_id'] or 'a producer'} (process {row['pid']} on {row['host']})"
    return EvaluatorState(name, row["lease_until"] > now - LEASE, here)


def _producer(item: Alert, about_topic: bool) -> str | None:
    """Return the producer that reported the alert, or its subject where that is a producer."""
    if item.told_by:
        return item.told_by
    producers = item.rule in ("producer_gone", "delivery_stalled", "many_unsettled", "memory_near_limit")
    return item.subject if producers and not about_topic else None


def _lookback(rule: AlertRule | None) -> float:
    """Return the seconds before the beginning of an alert that caused it, an hour at most."""
    windows = windows_of(rule.condition) if rule is not None else ()
    return min(max(windows, default=5 * MINUTE), HOUR)

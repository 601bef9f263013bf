"""Alerts as a page shows them: what fires, what was, the rules, and whether people are told."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from producer_core.alerts import Alert, AlertLog, AlertRule, RuleSet, Silence, rule_set_of
from producer_core.alerts.conditions import DAY, HOUR, MINUTE, ReportedByProducer, windows_of
from producer_core.alerts.evaluate_rules import ALL_TOPICS
from producer_core.alerts.lease import LEASE
from producer_core.alerts.notify_policy import shared_duplicates
from producer_core.alerts.routes import WEBHOOK, missing_addresses, routes_of
from producer_core.dashboard.queries.replays import operations, where_of
from producer_core.dashboard.queries.urgency import Urgency, urgency
from producer_core.dashboard.queries.view import View
from producer_core.errors import ConfigError
from producer_core.replay import Operation
from producer_core.store import Store

LISTED = 200
"""So many episodes that are over are listed at once."""
SHOWN = 30
"""So many that fire are shown one by one."""


class EvaluatorState(NamedTuple):
    """The process that judges: by its name, and whether it still does. `here`: it is this server."""

    name: str
    alive: bool
    here: bool


class RuleFileState(NamedTuple):
    """The file of rules, and in lines what is wrong with it. `repeat`: seconds until people are told again."""

    path: Path | None
    problem: tuple[str, ...]
    repeat: float
    link: str


@dataclass(frozen=True)
class RuleState:
    """A rule and how it stands. `silence`: what keeps it quiet for everything that it is about."""

    name: str
    rule: AlertRule
    firing: int = 0
    pending: int = 0
    episodes: int = 0
    last_at: float | None = None
    silence: Silence | None = None

    @property
    def told(self) -> bool:
        """A producer says itself when it begins and ends."""
        return isinstance(self.rule.condition, ReportedByProducer)


@dataclass(frozen=True)
class RouteState:
    """A way by which people are told, and how that goes.

    `source` names where the address comes from, never the address; `here`: this server has it, so it can be tried.
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
    """As of `now`: firing ones as they need somebody, pending ones, and the latest of those that are over."""

    now: float
    firing: tuple[Alert, ...]
    pending: tuple[Alert, ...]
    ended: tuple[Alert, ...]
    ended_total: int
    elsewhere: int
    """That fire, but are not about the topic or the producer that is looked at."""
    silences: tuple[Silence, ...]
    rules: tuple[RuleState, ...]
    routes: tuple[RouteState, ...]
    untold: tuple[Mapping[str, Any], ...]
    judge: EvaluatorState | None
    file: RuleFileState
    names: Mapping[str, str]
    """Producers by their ids, as a person knows them."""

    @property
    def failing(self) -> tuple[tuple[RouteState, float], ...]:
        """The routes over which nobody is told, each with the moment since when."""
        return tuple((one, one.failing_since) for one in self.routes if one.failing_since is not None)

    def silence_of(self, item: Alert) -> Silence | None:
        """The silence that keeps an alert quiet the longest."""
        covering = [one for one in self.silences if one.covers(item, self.now)]
        return max(covering, key=lambda one: one.until, default=None)


@dataclass(frozen=True)
class AlertDetail:
    """One alert from all sides. `since` and `until` are the time that it is about."""

    now: float
    alert: Alert
    rule: AlertRule | None
    silence: Silence | None
    told: tuple[Mapping[str, Any], ...]
    topic: str | None
    producer: str | None
    since: float
    until: float
    names: Mapping[str, str]


def alerts(store: Store, view: View, now: float) -> AlertsPage:
    """One consistent look at the store."""
    book = rule_set_of(store)
    since, until = view.since(now), view.until(now)
    with store.borrow():
        firing = store.rows("alerts_shown", state="firing", now=now, limit=1_000, **view.where)
        pending = store.rows("alerts_shown", state="pending", now=now, limit=LISTED, **view.where)
        ended = store.rows(
            "alerts_shown", state="resolved", now=now, since=since, until=until, limit=LISTED, **view.where
        )
        counted = {row["rule"]: row for row in store.rows("alerts_counted")}
        silences = tuple(Silence(**row) for row in store.rows("silences", now=now))
        routes = store.rows("alert_routes")
        untold = store.rows("alerts_outbox_open", limit=50)
        judge = store.rows("alerts_judge")
        names = _names(store, now)
    return AlertsPage(
        now=now,
        firing=tuple(sorted(_once(book, map(_alert, firing)), key=_urgency)),
        pending=tuple(map(_alert, pending)),
        ended=tuple(map(_alert, ended)),
        ended_total=_total(ended),
        elsewhere=sum(row["firing"] for row in counted.values()) - _total(firing),
        silences=silences,
        rules=_rules(book, counted, silences),
        routes=_routes(book, routes),
        untold=tuple(untold),
        judge=_judge(judge, now),
        file=RuleFileState(book.path, tuple((book.problem or "").splitlines()), book.repeat, book.link),
        names=names,
    )


def alert_detail(store: Store, alert_id: str, now: float) -> AlertDetail | None:
    """One alert; None when there is none of that id, or not any more."""
    with store.borrow():
        found = store.rows("alerts_shown", alert_id=alert_id, now=now, limit=1)
        if not found:
            return None
        item = _alert(found[0])
        told = store.rows("alerts_of_outbox", alert_id=alert_id)
        topics = {row["topic"] for row in store.rows("topics")}
        silences = AlertLog(store, clock=lambda: now).silences()
        names = _names(store, now)
    rule = rule_set_of(store).rules.get(item.rule)
    topic = item.subject.partition("/")[0]
    about_topic = topic in topics and item.subject != ALL_TOPICS
    return AlertDetail(
        now=now,
        alert=item,
        rule=rule,
        silence=next((one for one in silences if one.covers(item, now)), None),
        told=tuple(told),
        topic=topic if about_topic else None,
        producer=_producer(item, about_topic),
        since=item.started_at - _looks_back(rule),
        until=(item.resolved_at or now) + 30,
        names=names,
    )


def replays_since(store: Store, topic: str | None, since: float) -> tuple[Operation, ...]:
    """Replays of dead letters of a topic (None: of any) that were begun since, the latest first; three at most."""
    found = [one for one in operations(store, limit=50) if one.created_at >= since]
    about = [
        one for one in found if (where := where_of(one.selection)) is None or where.topic in (None, topic)
    ]
    return tuple((found if topic is None else about)[:3])


def _alert(row: Mapping[str, Any]) -> Alert:
    return Alert(**{name: value for name, value in row.items() if name != "total"})


def _once(book: RuleSet, items: Iterable[Alert]) -> list[Alert]:
    """What several producers say of one store is one alert to a reader."""
    known = list(items)
    twice = shared_duplicates(book.rules, ((item.rule, item.started_at, item.alert_id) for item in known))
    return [item for item in known if item.alert_id not in twice]


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
        looked_after=item.acknowledged_by is not None,
        quiet=bool(item.silenced or item.muted_by),
        over=item.since is not None,
    )


def _rules(
    book: RuleSet, counted: Mapping[str, Mapping[str, Any]], silences: Iterable[Silence]
) -> tuple[RuleState, ...]:
    """Those of the book, the ones that fire first; told by producers last."""
    quiet = {one.rule: one for one in silences if not one.subject}
    found = []
    for name, rule in book.rules.items():
        row = counted.get(name, {})
        figures = {key: row.get(key) or 0 for key in ("firing", "pending", "episodes")}
        found.append(RuleState(name, rule, **figures, last_at=row.get("last_at"), silence=quiet.get(name)))
    return tuple(sorted(found, key=lambda one: (not one.firing, not one.pending, one.told)))


def _routes(book: RuleSet, rows: Iterable[Mapping[str, Any]]) -> tuple[RouteState, ...]:
    """Those that the file and the environment of this server name, and those that other processes told over."""
    known = {row["name"]: row for row in rows}
    try:
        here = {route.name: route for route in routes_of(book)}
        missing = {settings.name for settings in missing_addresses(book)}
    except ConfigError:
        here, missing = {}, set()
    sources = {
        one.name: f"${one.url_env}" if one.url_env else f"file {one.url_file}" for one in book.routes
    } | ({"webhook": f"${WEBHOOK}"} if "webhook" in here and "webhook" not in missing else {})
    named = {settings.name: settings for settings in book.routes}
    found = []
    for name in dict.fromkeys((*here, *named, *known)):
        route, row = here.get(name), known.get(name, {})
        settings = route or named.get(name)
        found.append(
            RouteState(
                name,
                row.get("kind") or ("webhook" if settings else ""),
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


def _judge(rows: list[dict[str, Any]], now: float) -> EvaluatorState | None:
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
    """Whose alert it is: its subject, where that is no topic, or the producer that told of it."""
    if item.told_by:
        return item.told_by
    producers = item.rule in ("producer_gone", "delivery_stalled", "many_unsettled", "memory_near_limit")
    return item.subject if producers and not about_topic else None


def _looks_back(rule: AlertRule | None) -> float:
    """Seconds before an alert began that made it begin, an hour at most."""
    windows = windows_of(rule.condition) if rule is not None else ()
    return min(max(windows, default=5 * MINUTE), HOUR)

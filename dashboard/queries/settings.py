"""Queries for the settings page: the store, retention, limits, versions, alert rules and masking."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version

import orjson

from producer_core import __version__
from producer_core._internal.masking import MaskingRules, rules, rules_path
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.rule_set_file import VARIABLE, rule_set_of
from producer_core.config import connection_settings
from producer_core.dlq.limits import DeadLetterLimits, DeadLetterLoad, measure
from producer_core.store import Store
from producer_core.store.inspect import StoreInfo
from producer_core.store.retention import Retention

_HIDDEN = "***"


@dataclass(frozen=True)
class StoreSetting:
    """Holds a setting of the store and its default; None means no limit. `changed` is set where it was set explicitly."""

    name: str
    value: float | None
    default: float | None
    changed: bool


@dataclass(frozen=True)
class ClusterConnection:
    """Holds the connection settings of a cluster's producers; `secret` is set where the credentials are masked."""

    cluster_id: str
    servers: str
    settings: Mapping[str, str]
    secret: bool


@dataclass(frozen=True)
class AlertRules:
    """Holds the active rules; `path` is their file (None: built-in rules only), `problem` the reason why it is ignored."""

    rules: int
    switched_off: tuple[str, ...]
    routes: tuple[str, ...]
    path: str | None
    problem: str | None
    variable: str


@dataclass(frozen=True)
class Masking:
    """Holds the configured masking rules and their file; `exists` tells whether the file exists."""

    rules: MaskingRules
    path: str
    exists: bool


@dataclass(frozen=True)
class SettingsPage:
    """Holds everything the settings page shows, as of `now`."""

    now: float
    info: StoreInfo
    free: int
    kept: tuple[StoreSetting, ...]
    bounds: tuple[StoreSetting, ...]
    load: DeadLetterLoad
    versions: Mapping[str, str]
    alerts: AlertRules
    masking: Masking
    reaches: tuple[ClusterConnection, ...]


def settings(store: Store, now: float) -> SettingsPage:
    """Read the settings page from the store and the rule files."""
    with store.borrow():
        info, changed = store.info(), store.settings()
        load = measure(store, now)
        clients = store.rows("clients_of_clusters")
    return SettingsPage(
        now=now,
        info=info,
        free=shutil.disk_usage(store.path.parent).free,
        kept=tuple(
            StoreSetting(
                one.name,
                getattr(info.retention, one.name),
                getattr(Retention(), one.name),
                one.name in changed,
            )
            for one in fields(Retention)
        ),
        bounds=_bounds(changed),
        load=load,
        versions=versions(),
        alerts=_alerts(rule_set_of(store)),
        masking=Masking(rules(), str(rules_path()), rules_path().exists()),
        reaches=tuple(cluster_connection(row["cluster_id"], row["settings"]) for row in clients),
    )


def versions() -> Mapping[str, str]:
    """Return the installed versions by name."""
    from confluent_kafka import libversion

    return {
        "producer-core": __version__,
        "confluent-kafka": _installed("confluent-kafka"),
        "librdkafka": str(libversion()[0]),
        "DuckDB": _installed("duckdb"),
        "Streamlit": _installed("streamlit"),
        "Plotly": _installed("plotly"),
        "Python": platform.python_version(),
        "System": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def cluster_connection(cluster_id: str, settings: str) -> ClusterConnection:
    """Extract the connection settings from a producer's masked settings."""
    given = {name: str(value) for name, value in orjson.loads(settings or "{}").items()}
    servers = given.pop("bootstrap.servers", "")
    connection = {name: str(value) for name, value in connection_settings(given).items()}
    secret = any(value == _HIDDEN for value in connection.values())
    return ClusterConnection(
        cluster_id, servers, {name: value for name, value in connection.items() if value != _HIDDEN}, secret
    )


def _bounds(changed: Mapping[str, float]) -> tuple[StoreSetting, ...]:
    names = {"dlq_max_size": "dead_letters", "dlq_max_bytes": "bytes", "dlq_max_age": "age"}
    now, default = DeadLetterLimits().overridden_by(changed), DeadLetterLimits()
    return tuple(
        StoreSetting(name, getattr(now, field), getattr(default, field), name in changed)
        for name, field in names.items()
    )


def _alerts(rule_set: RuleSet) -> AlertRules:
    return AlertRules(
        rules=sum(rule.enabled for rule in rule_set.rules.values()),
        switched_off=tuple(sorted(name for name, rule in rule_set.rules.items() if not rule.enabled)),
        routes=tuple(route.name for route in rule_set.routes),
        path=None if rule_set.path is None else str(rule_set.path),
        problem=rule_set.problem,
        variable=VARIABLE,
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"

"""The settings: what the store is and holds, for how long, what is installed, and which rules are in force."""

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
class RetainedRows:
    """A setting of the store: its value and its default; `changed` where somebody set it. None: no bound."""

    name: str
    value: float | None
    default: float | None
    changed: bool


@dataclass(frozen=True)
class StoreReach:
    """How the producers of a cluster reach it. `secret`: they sign in, and what with is not in the store."""

    cluster_id: str
    servers: str
    settings: Mapping[str, str]
    secret: bool


@dataclass(frozen=True)
class AlertRules:
    """The rules in force. `path`: their file (None: only ours); `problem`: why the file does not count."""

    rules: int
    switched_off: tuple[str, ...]
    routes: tuple[str, ...]
    path: str | None
    problem: str | None
    variable: str


@dataclass(frozen=True)
class Masking:
    """What is hidden beyond the rules that are always there; `there`: the file exists."""

    rules: MaskingRules
    path: str
    there: bool


@dataclass(frozen=True)
class SettingsPage:
    """Everything the settings page shows, as of `now`."""

    now: float
    info: StoreInfo
    free: int
    kept: tuple[RetainedRows, ...]
    bounds: tuple[RetainedRows, ...]
    load: DeadLetterLoad
    versions: Mapping[str, str]
    alerts: AlertRules
    masking: Masking
    reaches: tuple[StoreReach, ...]


def settings(store: Store, now: float) -> SettingsPage:
    """One consistent look at the store, and at the files of rules."""
    with store.borrow():
        info, changed = store.info(), store.settings()
        load = measure(store)
        clients = store.rows("clients_of_clusters")
    return SettingsPage(
        now=now,
        info=info,
        free=shutil.disk_usage(store.path.parent).free,
        kept=tuple(
            RetainedRows(
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
        reaches=tuple(reach(row["cluster_id"], row["settings"]) for row in clients),
    )


def versions() -> Mapping[str, str]:
    """What is installed, by name."""
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


def reach(cluster_id: str, settings: str) -> StoreReach:
    """How a producer's masked settings say that its cluster is reached."""
    given = {name: str(value) for name, value in orjson.loads(settings or "{}").items()}
    servers = given.pop("bootstrap.servers", "")
    ways = {name: str(value) for name, value in connection_settings(given).items()}
    secret = any(value == _HIDDEN for value in ways.values())
    return StoreReach(
        cluster_id, servers, {name: value for name, value in ways.items() if value != _HIDDEN}, secret
    )


def _bounds(changed: Mapping[str, float]) -> tuple[RetainedRows, ...]:
    names = {"dlq_max_size": "dead_letters", "dlq_max_bytes": "bytes", "dlq_max_age": "age"}
    now, default = DeadLetterLimits().set_by(changed), DeadLetterLimits()
    return tuple(
        RetainedRows(name, getattr(now, field), getattr(default, field), name in changed)
        for name, field in names.items()
    )


def _alerts(book: RuleSet) -> AlertRules:
    return AlertRules(
        rules=sum(rule.enabled for rule in book.rules.values()),
        switched_off=tuple(sorted(name for name, rule in book.rules.items() if not rule.enabled)),
        routes=tuple(route.name for route in book.routes),
        path=None if book.path is None else str(book.path),
        problem=book.problem,
        variable=VARIABLE,
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"

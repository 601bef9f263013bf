"""The `health` command: the status of a store's producers and alerts, with the reasons."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from producer_core._internal.join_names import join_names
from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.metrics.heartbeat import ALIVE

Status = Literal["healthy", "degraded", "unhealthy", "unknown"]
_ORDER: tuple[Status, ...] = ("healthy", "degraded", "unhealthy")
_MAX_AGE = 24 * 3600.0
_WINDOW = 300.0
_MAX_ERROR_RATE = 0.05
_NONE_UNSETTLED = "no message was unsettled"


@dataclass(frozen=True)
class Health:
    """The worst status of all findings, and each finding in a sentence."""

    status: Status
    issues: tuple[str, ...]
    summary: str


@click.command(short_help="Check producers and alerts; exit code 0 or 1.")
@options.store_option
@options.application
@options.cluster
@options.as_json
@click.pass_context
def health(
    ctx: click.Context, store_path: Path | None, application: str | None, cluster: str | None, as_json: bool
) -> None:
    """Check that producers are running and connected, that no alert is firing, and that few messages fail.

    \b
      producer-core health && echo healthy
      producer-core health --json | jq -r .status

    --application and --cluster select producers and their messages. Alerts about a topic or the whole store always count.

    Status: healthy (exit code 0); degraded, unhealthy or unknown (exit code 1). The JSON object contains status,
    issues, summary, producers and alerts.
    """
    from producer_core.store import Store

    store, now = Store.open(store_path, create=False), time.time()
    origin = {"application": application, "cluster": cluster}
    producers = store.rows("producers", since=now - _MAX_AGE, **origin)
    firing = store.rows("alerts_firing", now=now, **origin)
    alerts = [row for row in firing if not (row["silenced"] or row["muted_by"])]
    topics = store.rows("totals_by_topic", since=int(now - _WINDOW), **origin)
    found = assess(producers, alerts, topics, now)
    if as_json:
        output.emit(_json(found, producers, alerts))
    else:
        _print(found, alerts)
    ctx.exit(0 if found.status == "healthy" else 1)


def assess(
    producers: Sequence[Mapping[str, Any]],
    alerts: Sequence[Mapping[str, Any]],
    topics: Sequence[Mapping[str, Any]],
    now: float,
) -> Health:
    """Return the health that follows from rows of the store."""
    if not producers:
        return Health("unknown", ("No producer has used this store in the last 24 hours.",), "No data.")
    found: list[tuple[Status, str]] = [
        _of_producer(row, now) for row in producers if row["closed_at"] is None
    ]
    found = [(status, issue) for status, issue in found if issue]
    found += [
        ("unhealthy" if row["severity"] == "critical" else "degraded", row["text"])
        for row in _by_rule(alerts)
    ]
    dead, acknowledged = (sum(row[name] for row in topics) for name in ("dead", "acknowledged"))
    if dead > _MAX_ERROR_RATE * (dead + acknowledged):
        share = dead / (dead + acknowledged)
        found.append(
            (
                "unhealthy",
                f"{share:.1%} of {output.became_dead(dead + acknowledged)} in the last 5 minutes.",
            )
        )
    healthy: Status = "healthy"
    status = max((status for status, _ in found), key=_ORDER.index, default=healthy)
    return Health(status, tuple(dict.fromkeys(issue for _, issue in found)), _summary(producers, topics, now))


def _by_rule(alerts: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the alerts, those of a rule about many topics as one."""
    from producer_core.alerts.alert_groups import grouped, merged_row

    yield from map(merged_row, grouped(alerts, rule=lambda row: str(row["rule"])))


def _of_producer(row: Mapping[str, Any], now: float) -> tuple[Status, str]:
    name = f"{row['client_id']} ({row['host']}, process {row['pid']})"
    silent = now - row["seen_at"]
    if silent > ALIVE:
        pending = row["pending"]
        unsettled = (
            f"{plural(pending, 'message was', 'messages were')} unsettled" if pending else _NONE_UNSETTLED
        )
        return (
            "unhealthy" if pending else "degraded",
            f"{name} has sent no heartbeat for {output.duration(silent)} and was not closed; {unsettled}.",
        )
    if not row["connected"]:
        return (
            "unhealthy",
            f"{name} is not connected: {row['connection_error'] or 'no broker has responded yet'}.",
        )
    if row["queue_limit"] and row["queue_messages"] > 0.9 * row["queue_limit"]:
        return (
            "degraded",
            f"{name}: the queue is nearly full ({plural(row['queue_messages'], 'message')}).",
        )
    return "healthy", ""


def _summary(producers: Sequence[Mapping[str, Any]], topics: Sequence[Mapping[str, Any]], now: float) -> str:
    alive = sum(row["closed_at"] is None and now - row["seen_at"] <= ALIVE for row in producers)
    last = max(row["seen_at"] for row in producers)
    running = (
        f"{plural(alive, 'producer')} running"
        if alive
        else f"No producer running; last heartbeat {output.ago(last)}"
    )
    acknowledged, dead = (sum(row[name] for row in topics) for name in ("acknowledged", "dead"))
    return (
        f"{running}; in the last 5 minutes {plural(acknowledged, 'message was', 'messages were')} acknowledged and "
        f"{plural(dead, 'became a dead letter', 'became dead letters')}{_by_topic(topics)}."
    )


def _by_topic(topics: Sequence[Mapping[str, Any]]) -> str:
    """Return the topics with dead letters, most first: ` (12 of orders and 1 of payments)`."""
    failing = sorted((row for row in topics if row["dead"]), key=lambda row: -row["dead"])
    named = join_names((f"{row['dead']:,} of {row['topic']}" for row in failing), most=5)
    return f" ({named})" if failing else ""


def _print(found: Health, alerts: Sequence[Mapping[str, Any]]) -> None:
    output.say(f"{found.status}: {found.summary}")
    for issue in found.issues:
        output.say(f"  - {issue}")
    for advice in dict.fromkeys(row["advice"] for row in alerts if row["advice"]):
        output.advise(advice)


def _json(
    found: Health, producers: Sequence[Mapping[str, Any]], alerts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    columns = (
        "producer_id",
        "client_id",
        "host",
        "pid",
        "cluster_id",
        "seen_at",
        "closed_at",
        "connected",
        "pending",
    )
    return {
        "status": found.status,
        "issues": found.issues,
        "summary": found.summary,
        "producers": [{name: row[name] for name in columns} for row in producers],
        "alerts": [
            {name: row[name] for name in ("alert_id", "rule", "severity", "subject", "text", "advice")}
            for row in alerts
        ],
    }

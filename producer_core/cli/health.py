"""The `health` command: one word for a store's producers and alerts, and the reasons."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from producer_core.cli import options, output

Status = Literal["healthy", "degraded", "unhealthy", "unknown"]
_ORDER: tuple[Status, ...] = ("healthy", "degraded", "unhealthy")
_ALIVE = 15.0
_FORGOTTEN = 24 * 3600.0
_WINDOW = 300.0
_ERROR_RATE = 0.05


@dataclass(frozen=True)
class Health:
    """The worst of what was found, and each finding in a sentence."""

    status: Status
    issues: tuple[str, ...]
    summary: str


@click.command(short_help="Whether producers and alerts are in order; exit code 0 or 1.")
@options.store_option
@options.as_json
@click.pass_context
def health(ctx: click.Context, store_path: Path | None, as_json: bool) -> None:
    """Whether all is well: producers alive and connected, no alert firing, few messages dying.

    \b
      producer-core health && echo all is well
      producer-core health --json | jq -r .status

    Status: healthy (exit code 0); degraded, unhealthy or unknown (exit code 1). The JSON has status, issues,
    summary, producers and alerts.
    """
    from producer_core.store import Store

    store, now = Store.open(store_path, create=False), time.time()
    producers = store.rows("producers", since=now - _FORGOTTEN)
    firing = store.rows("alerts_firing", now=now)
    alerts = [row for row in firing if not (row["silenced"] or row["muted_by"])]
    (totals,) = store.rows("totals", since=int(now - _WINDOW))
    found = judge(producers, alerts, totals, now)
    if as_json:
        output.emit(_json(found, producers, alerts))
    else:
        _say(found, alerts)
    ctx.exit(0 if found.status == "healthy" else 1)


def judge(
    producers: Sequence[Mapping[str, Any]],
    alerts: Sequence[Mapping[str, Any]],
    totals: Mapping[str, Any],
    now: float,
) -> Health:
    """The health that rows of the store add up to."""
    if not producers:
        return Health("unknown", ("No producer has used this store in the last day.",), "Nothing to judge.")
    found: list[tuple[Status, str]] = [
        _of_producer(row, now) for row in producers if row["closed_at"] is None
    ]
    found = [(status, issue) for status, issue in found if issue]
    found += [("unhealthy" if row["severity"] == "critical" else "degraded", row["text"]) for row in alerts]
    dead, sent = totals["dead"], totals["acknowledged"]
    if dead > _ERROR_RATE * (dead + sent):
        found.append(("unhealthy", f"{dead / (dead + sent):.1%} of the messages died in the last 5 minutes."))
    healthy: Status = "healthy"
    status = max((status for status, _ in found), key=_ORDER.index, default=healthy)
    return Health(status, tuple(dict.fromkeys(issue for _, issue in found)), _summary(producers, totals, now))


def _of_producer(row: Mapping[str, Any], now: float) -> tuple[Status, str]:
    name = f"{row['client_id']} ({row['host']}, process {row['pid']})"
    silent = now - row["seen_at"]
    if silent > _ALIVE:
        return "unhealthy", f"{name} was not closed and is silent since {output.duration(silent)}."
    if not row["connected"]:
        return "unhealthy", f"{name} is not connected: {row['connection_error'] or 'no broker answered yet'}."
    if row["queue_limit"] and row["queue_messages"] > 0.9 * row["queue_limit"]:
        return "degraded", f"{name}: its queue is nearly full ({row['queue_messages']:,} messages)."
    return "healthy", ""


def _summary(producers: Sequence[Mapping[str, Any]], totals: Mapping[str, Any], now: float) -> str:
    alive = sum(row["closed_at"] is None and now - row["seen_at"] <= _ALIVE for row in producers)
    last = max(row["seen_at"] for row in producers)
    who = (
        f"{output.count(alive, 'producer')} running"
        if alive
        else f"No producer running; the last was seen {output.ago(last)}"
    )
    return f"{who}; in the last 5 minutes {totals['acknowledged']:,} messages sent, {totals['dead']:,} died."


def _say(found: Health, alerts: Sequence[Mapping[str, Any]]) -> None:
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

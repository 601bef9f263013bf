"""The `alerts` commands: list, acknowledge, silence."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core.cli import options, show
from producer_core.cli.lazy import Failed

if TYPE_CHECKING:
    from producer_core.alerts import Alert, AlertLog


@click.group(short_help="Alerts: list, acknowledge, silence.")
def alerts() -> None:
    """Alerts: each fires once when its condition begins and resolves once when it ends."""


@alerts.command(name="list", short_help="What fires now; with --all what has resolved too.")
@options.store_option
@click.option("--all", "everything", is_flag=True, help="Resolved ones too.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@options.as_json
def list_(store_path: Path | None, everything: bool, limit: int, as_json: bool) -> None:
    """What fires now, the most recent first; with --all what has resolved too."""
    found = _log(store_path).list(state=None if everything else "firing", limit=limit)
    if as_json:
        show.emit([{"alert_id": item.alert_id, **dataclasses.asdict(item)} for item in found])
    elif not found:
        click.echo("No alert fires." if not everything else "No alert has fired yet.")
    else:
        show.table(("id", "severity", "state", "since", "what", "seen by"), [_row(item) for item in found])
        for advice in dict.fromkeys(item.advice for item in found if item.state == "firing"):
            click.echo(f"  {advice}")


@alerts.command()
@click.argument("alert_id")
@options.store_option
def ack(alert_id: str, store_path: Path | None) -> None:
    """Say that you look after an alert, so that others need not."""
    if not _log(store_path).acknowledge(alert_id, who=options.me(), origin="cli"):
        raise Failed(
            f"There is no alert {alert_id} that waits for somebody.", "See producer-core alerts list."
        )
    click.echo(f"Acknowledged {alert_id} as {options.me()}.")


@alerts.command(short_help="Keep RULE quiet for a while.")
@click.argument("rule")
@click.option("--subject", default="", help="Only for this subject (a topic, a producer); default all.")
@click.option("--for", "length", type=options.Duration(), default="1h", show_default=True, help="How long.")
@click.option("--why", default="", help="A word for those who wonder.")
@options.store_option
def silence(rule: str, subject: str, length: float, why: str, store_path: Path | None) -> None:
    """Keep RULE quiet for a while; its alerts still fire and resolve, nobody is told.

    \b
      producer-core alerts silence high_latency --subject orders --for 2h --why "broker upgrade"
    """
    try:
        quiet = _log(store_path).silence(
            rule, subject, until=time.time() + length, who=options.me(), why=why, origin="cli"
        )
    except ValueError as error:
        raise Failed(str(error)) from error
    click.echo(f"{rule} is quiet{f' for {subject}' if subject else ''} until {show.moment(quiet.until)}.")


def _log(store_path: Path | None) -> AlertLog:
    from producer_core.alerts import AlertLog
    from producer_core.store import Store

    return AlertLog(Store.open(store_path, create=False))


def _row(item: Alert) -> tuple[str | None, ...]:
    state = f"{item.state} (silenced)" if item.silenced else item.state
    return item.alert_id, item.severity, state, show.moment(item.started_at), item.text, item.acknowledged_by

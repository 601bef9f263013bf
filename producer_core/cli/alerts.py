"""The `alerts` commands: list, acknowledge and silence alerts; check rules; test routes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.alerts import AlertChange, AlertLog, AlertRule, Route, RuleSet
    from producer_core.alerts.alert_groups import AlertGroup
    from producer_core.store import Store

_MOST_GROUPED = 10_000
"""Alerts that are read to be grouped."""


@click.group(short_help="List, acknowledge and silence alerts; check rules.")
def alerts() -> None:
    """List, acknowledge and silence alerts; check rules and routes.

    An alert fires once when its condition begins and resolves once when it ends. One process per store evaluates
    alerts: a producer, the dashboard, or "alerts run". A TOML file defines additional rules and the routes for
    notifications: $PRODUCER_CORE_ALERTS, or else alerts.toml beside the store. Without a file, the built-in rules
    apply. $PRODUCER_CORE_ALERT_WEBHOOK is the URL of a webhook, $PRODUCER_CORE_ALERTMANAGER that of an Alertmanager.

    \b
      producer-core alerts list                                   # firing alerts
      producer-core alerts ack 3f2a9c51d07e                       # acknowledge one
      producer-core alerts silence high_latency --for 2h          # suppress notifications
      producer-core alerts check alerts.toml                      # validate a rules file
      producer-core alerts test                                   # test every route
    """


@alerts.command(name="list", short_help="List firing alerts; --all includes resolved ones.")
@options.store_option
@click.option("--all", "everything", is_flag=True, help="Include pending and resolved alerts.")
@click.option("--limit", type=options.ROWS, default=50, show_default=True, help="Maximum number of alerts.")
@options.application
@options.cluster
@options.as_json
def list_(
    store_path: Path | None,
    everything: bool,
    limit: int,
    application: str | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """List firing alerts, most recent first. With --all, include pending and resolved ones.

    --application and --cluster leave out alerts about producers of others; alerts about a topic or the whole store stay.

    Alerts of one rule about many topics are one line, with the rule in place of the id; --json lists each of them.

    The JSON object is {"alerts": [...], "more": true if there are more than --limit}.
    """
    from producer_core.alerts.alert_groups import alert_groups

    found = _log(store_path).list(
        state=None if everything else "firing",
        limit=limit + 1 if as_json else _MOST_GROUPED,
        application=application,
        cluster=cluster,
    )
    if as_json:
        alerts_ = [{"alert_id": item.alert_id, **dataclasses.asdict(item)} for item in found[:limit]]
        output.emit({"alerts": alerts_, "more": len(found) > limit})
    elif not found:
        output.say("No alerts are firing." if not everything else "No alert has fired yet.")
    else:
        groups = alert_groups(found)[:limit]
        output.table(
            ("id", "severity", "state", "since", "summary", "acknowledged by"),
            [_row(group) for group in groups],
            shrink=("summary", "acknowledged by"),
        )
        for advice in dict.fromkeys(group.alert.advice for group in groups if group.alert.state == "firing"):
            output.advise(advice)


@alerts.command(short_help="Acknowledge an alert.")
@click.argument("alert", metavar="ALERT")
@options.store_option
def ack(alert: str, store_path: Path | None) -> None:
    """Acknowledge an alert: other operators see that you are handling it, and its notification is not repeated.

    ALERT is the id of an alert, or the name of a rule, which acknowledges all its firing alerts.

    \b
      producer-core alerts ack 3f2a9c51d07e
      producer-core alerts ack order_break
    """
    log, who = _log(store_path), options.current_user()
    of_rule = [one.alert_id for one in log.firing().values() if one.rule == alert and not one.acknowledged_by]
    if not log.acknowledge_all(of_rule or (alert,), who=who, origin="cli"):
        raise Failed(
            f"Alert {alert} does not exist or is already acknowledged.", "See producer-core alerts list."
        )
    done = f"{plural(len(of_rule), 'alert')} of {alert}" if of_rule else alert
    output.say(f"Acknowledged {done} as {who}.")


@alerts.command(short_help="Suppress notifications of RULE for a while.")
@click.argument("rule")
@click.option("--subject", default="", help="Only this subject (a topic, a producer); default: all.")
@click.option(
    "--for",
    "length",
    type=options.DurationType(positive=True),
    default="1h",
    show_default=True,
    help="Length of the silence.",
)
@click.option("--why", default="", help="Reason shown to other operators.")
@options.store_option
def silence(rule: str, subject: str, length: float, why: str, store_path: Path | None) -> None:
    """Suppress the notifications of RULE for a while. Its alerts still fire and resolve.

    \b
      producer-core alerts silence high_latency --subject orders --for 2h --why "broker upgrade"
    """
    try:
        created = _log(store_path).silence(
            rule, subject, until=time.time() + length, who=options.current_user(), why=why, origin="cli"
        )
    except ValueError as error:
        raise Failed(str(error)) from error
    output.say(
        f"{rule} is silenced{f' for {subject}' if subject else ''} until {output.moment(created.until)}."
    )


@alerts.command(short_help="End a silence now.")
@click.argument("rule")
@click.option("--subject", default="", help="Subject of the silence; default: the one without a subject.")
@options.store_option
def unsilence(rule: str, subject: str, store_path: Path | None) -> None:
    """End a silence of RULE now. Notifications for alerts that are still firing are sent within seconds."""
    if not _log(store_path).unsilence(rule, subject, who=options.current_user(), origin="cli"):
        raise Failed(f"{rule} is not silenced{f' for {subject}' if subject else ''}.")
    output.say(f"{rule} is no longer silenced{f' for {subject}' if subject else ''}.")


@alerts.command(short_help="Show rules, silences and notification routes.")
@options.store_option
@options.as_json
def rules(store_path: Path | None, as_json: bool) -> None:
    """Show the rules that apply to a store, the active silences and the notification routes."""
    from producer_core.alerts import AlertLog, rule_set_of
    from producer_core.alerts.conditions import REPORTED

    store = _store(store_path)
    rule_set, silences, routes = rule_set_of(store), AlertLog(store).silences(), store.rows("alert_routes")
    if as_json:
        output.emit(
            {
                "file": str(rule_set.path) if rule_set.path else None,
                "problem": rule_set.problem,
                "rules": [_rule_json(name, rule) for name, rule in rule_set.rules.items()],
                "routes": routes,
                "silences": [dataclasses.asdict(item) for item in silences],
            }
        )
        return
    output.say(f"Rules from {rule_set.path}." if rule_set.path else "Built-in rules; there is no rules file.")
    if rule_set.problem:
        output.say(f"The file is ignored: {rule_set.problem}")
    output.table(
        ("rule", "severity", "fires when", "for", "keeps firing for"),
        [_rule_row(name, rule) for name, rule in rule_set.rules.items() if rule.condition != REPORTED],
    )
    output.say("Reported by producers:")
    for name, rule in rule_set.rules.items():
        if rule.condition == REPORTED:
            condition = _condition(name, rule) if rule.enabled else "disabled"
            output.say(f"  {name} ({rule.severity}): {condition}.")
    for item in silences:
        target = f"{item.rule} for {item.subject}" if item.subject else item.rule
        output.say(f"Silenced until {output.moment(item.until)} by {item.who}: {target}. {item.why}".rstrip())
    for row in routes:
        output.say(_route_line(row))


@alerts.command(short_help="Validate a rules file.")
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Validate the rules in FILE. Print each mistake with its line, its rule and a fix; exit code 2 if there is one."""
    from producer_core.alerts import load
    from producer_core.alerts.routes import missing_addresses
    from producer_core.alerts.rules import RULES

    rule_set = load(file)
    new = [name for name in rule_set.rules if name not in RULES]
    changed = [name for name in RULES if rule_set.rules[name] != RULES[name]]
    output.say(
        f"{file.name} is valid: {plural(len(new), 'new rule')}, "
        f"{plural(len(changed), 'changed built-in rule')}, {plural(len(rule_set.routes), 'route')}."
    )
    for settings in missing_addresses(rule_set):
        source = f"${settings.url_env}" if settings.url_env else settings.url_file
        output.say(f"  Route {settings.name} has no URL in this environment: {source} is empty.")


@alerts.command(short_help="Evaluate alerts and send notifications until stopped.")
@options.store_option
def run(store_path: Path | None) -> None:
    """Evaluate the alerts of a store and send notifications until stopped with Ctrl-C.

    Run it on the host of the store if alerts must be evaluated while no producer and no dashboard is running. Several
    instances may run at once: one evaluates, and the others take over when it exits.
    """
    from producer_core._internal.stop_signal import StopSignal
    from producer_core.alerts import AlertWatcher

    stop = StopSignal()
    store = _store(store_path)
    watcher = AlertWatcher(store, on_changes=_print_changes)
    names = ", ".join(route.name for route in watcher.routes) or "none, because no route has a URL"
    output.say(f"Evaluating alerts of {store.path}. Routes: {names}. Stop with Ctrl-C.")
    with watcher:
        stop.wait()


@alerts.command(short_help="Send a test alert and show the response.")
@click.argument("route", required=False)
@options.store_option
def test(route: str | None, store_path: Path | None) -> None:
    """Send a test alert via ROUTE, or via every route with a URL. Exit code 1 if one fails.

    The alert is named TestAlert; it fires, resolves immediately (at an Alertmanager after two minutes), and is not
    stored.
    """
    from producer_core.alerts import rule_set_of
    from producer_core.alerts.routes import missing_addresses, routes_of, url_source

    store = _store(store_path)
    rule_set = rule_set_of(store)
    if rule_set.problem:
        raise Failed(rule_set.problem, "See producer-core alerts check.")
    found = [item for item in routes_of(rule_set) if route in (None, item.name)]
    if not found:
        without = ", ".join(settings.name for settings in missing_addresses(rule_set))
        raise Failed(
            f"There is no route {route!r} with a URL."
            if route
            else "No route has a URL in this environment.",
            f"Without a URL: {without}."
            if without
            else "Set PRODUCER_CORE_ALERT_WEBHOOK or PRODUCER_CORE_ALERTMANAGER, or add a [routes.name] table to the rules file.",
        )
    results = [(item.name, *_test_route(item, rule_set, str(store.path))) for item in found]
    for name, accepted, text in results:
        output.say(f"{name}: {'accepted' if accepted else 'FAILED'}. {text}")
        if not accepted:
            output.say(
                f"  Check the URL in {url_source(name, rule_set)}, and that this host can reach the receiver.",
                err=True,
            )
    if not all(accepted for _, accepted, _ in results):
        raise click.exceptions.Exit(1)


def _test_route(route: Route, rule_set: RuleSet, store: str) -> tuple[bool, str]:
    """Send a test alert. Return whether the receiver accepted it, and its response."""
    from producer_core.alerts.send_test import send_test_alert

    answer = send_test_alert(route, rule_set, store=store, who=options.current_user())
    return answer.accepted, f"{answer.text}.{f' Response: {answer.body}' if answer.body else ''}"


def _print_changes(changes: Sequence[AlertChange]) -> None:
    for change in changes:
        if change.kind in ("fired", "resolved"):
            item = change.alert
            output.say(
                f"{output.moment(item.changed_at)} {change.kind} {item.severity} {item.rule}: {item.text}"
            )


def _store(store_path: Path | None) -> Store:
    from producer_core.store import Store

    return Store.open(store_path, create=False)


def _log(store_path: Path | None) -> AlertLog:
    from producer_core.alerts import AlertLog

    return AlertLog(_store(store_path))


def _row(group: AlertGroup) -> tuple[str | None, ...]:
    item = group.alert
    state = f"{item.state} (silenced)" if item.silenced else item.state
    if item.muted_by and not item.silenced and item.state == "firing":
        state = f"{item.state} (muted)"
    return (
        item.rule if group.several else item.alert_id,
        item.severity,
        state,
        output.moment(item.started_at),
        item.text,
        item.acknowledged_by,
    )


def _rule_row(name: str, rule: AlertRule) -> tuple[str, ...]:
    from producer_core.alerts.conditions import span

    condition = _condition(name, rule) if rule.enabled else "disabled"
    delays = [span(seconds) if seconds else "-" for seconds in (rule.for_, rule.keep_firing_for)]
    return name, rule.severity, condition, *delays


def _rule_json(name: str, rule: AlertRule) -> dict[str, object]:
    values = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    values["for"] = values.pop("for_")
    return {"name": name, **values, "condition": _condition(name, rule)}


def _condition(name: str, rule: AlertRule) -> str:
    from producer_core.alerts.conditions import REPORTED, describe
    from producer_core.alerts.reported_conditions import REPORTED_CONDITIONS

    known = REPORTED_CONDITIONS.get(name) if rule.condition == REPORTED else None
    return known or describe(rule.condition)


def _route_line(row: dict[str, object]) -> str:
    sent = output.moment(row["told_at"])  # type: ignore[arg-type]  # a DOUBLE of the store, or NULL
    line = f"Route {row['name']}: last sent {sent}, {row['waiting']} pending, {row['given_up']} abandoned."
    if row["failing_since"] is None:
        return line
    return f"{line} Failing since {output.moment(row['failing_since'])}: {row['answer']}"  # type: ignore[arg-type]

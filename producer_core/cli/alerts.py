"""The `alerts` commands: what fires, who looks after it, which rules hold, and whether people are told."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.alerts import Alert, AlertChange, AlertLog, AlertRule, Route, RuleSet
    from producer_core.store import Store


@click.group(short_help="Alerts: list, acknowledge, silence; rules, run, test.")
def alerts() -> None:
    """Alerts: each fires once when its condition begins and resolves once when it ends.

    One process a store judges them: any producer, the dashboard, or «alerts run». Rules of your own and the routes over
    which people are told stand in a TOML file: $PRODUCER_CORE_ALERTS, else alerts.toml beside the store. Without a
    file the built-in rules hold, and $PRODUCER_CORE_ALERT_WEBHOOK is the address of a webhook.
    """


@alerts.command(name="list", short_help="What fires now; with --all what has resolved too.")
@options.store_option
@click.option("--all", "everything", is_flag=True, help="Resolved ones too, and those that do not fire yet.")
@click.option("--limit", type=options.ROWS, default=50, show_default=True, help="At most so many.")
@options.as_json
def list_(store_path: Path | None, everything: bool, limit: int, as_json: bool) -> None:
    """What fires now, the most recent first; with --all what has resolved too.

    The JSON is {"alerts": [...], "more": whether there are more than --limit}.
    """
    found = _log(store_path).list(state=None if everything else "firing", limit=limit + 1)
    found, more = found[:limit], len(found) > limit
    if as_json:
        alerts_ = [{"alert_id": item.alert_id, **dataclasses.asdict(item)} for item in found]
        output.emit({"alerts": alerts_, "more": more})
    elif not found:
        output.say("No alert fires." if not everything else "No alert has fired yet.")
    else:
        output.table(
            ("id", "severity", "state", "since", "what", "seen by"),
            [_row(item) for item in found],
            shrink=("what", "seen by"),
        )
        for advice in dict.fromkeys(item.advice for item in found if item.state == "firing"):
            output.advise(advice)


@alerts.command()
@click.argument("alert_id")
@options.store_option
def ack(alert_id: str, store_path: Path | None) -> None:
    """Say that you look after an alert, so that others need not."""
    if not _log(store_path).acknowledge(alert_id, who=options.current_user(), origin="cli"):
        raise Failed(
            f"There is no alert {alert_id} that waits for somebody.", "See producer-core alerts list."
        )
    output.say(f"Acknowledged {alert_id} as {options.current_user()}.")


@alerts.command(short_help="Keep RULE quiet for a while.")
@click.argument("rule")
@click.option("--subject", default="", help="Only for this subject (a topic, a producer); default all.")
@click.option(
    "--for", "length", type=options.DurationType(), default="1h", show_default=True, help="How long."
)
@click.option("--why", default="", help="A word for those who wonder.")
@options.store_option
def silence(rule: str, subject: str, length: float, why: str, store_path: Path | None) -> None:
    """Keep RULE quiet for a while; its alerts still fire and resolve, nobody is told.

    \b
      producer-core alerts silence high_latency --subject orders --for 2h --why "broker upgrade"
    """
    try:
        quiet = _log(store_path).silence(
            rule, subject, until=time.time() + length, who=options.current_user(), why=why, origin="cli"
        )
    except ValueError as error:
        raise Failed(str(error)) from error
    output.say(f"{rule} is quiet{f' for {subject}' if subject else ''} until {output.moment(quiet.until)}.")


@alerts.command(short_help="End a silence now.")
@click.argument("rule")
@click.option("--subject", default="", help="The subject that the silence names; default the one for all.")
@options.store_option
def unsilence(rule: str, subject: str, store_path: Path | None) -> None:
    """End a silence of RULE now; what fires is told within seconds."""
    if not _log(store_path).unsilence(rule, subject, who=options.current_user(), origin="cli"):
        raise Failed(f"Nothing keeps {rule}{f' for {subject}' if subject else ''} quiet.")
    output.say(f"{rule} is not quiet any more{f' for {subject}' if subject else ''}.")


@alerts.command(short_help="The rules that hold, and over what people are told.")
@options.store_option
@options.as_json
def rules(store_path: Path | None, as_json: bool) -> None:
    """The rules that hold for a store, what is silenced, and over what people are told."""
    from producer_core.alerts import AlertLog, rule_set_of
    from producer_core.alerts.conditions import ReportedByProducer

    store = _store(store_path)
    book, quiet, routes = rule_set_of(store), AlertLog(store).silences(), store.rows("alert_routes")
    if as_json:
        output.emit(
            {
                "file": str(book.path) if book.path else None,
                "problem": book.problem,
                "rules": [_rule_json(name, rule) for name, rule in book.rules.items()],
                "routes": routes,
                "silences": [dataclasses.asdict(item) for item in quiet],
            }
        )
        return
    output.say(f"Rules of {book.path}." if book.path else "The built-in rules; there is no file of rules.")
    if book.problem:
        output.say(f"The file does not count: {book.problem}")
    judged = {
        name: rule for name, rule in book.rules.items() if not isinstance(rule.condition, ReportedByProducer)
    }
    output.table(
        ("rule", "severity", "fires when", "for", "keeps firing for"),
        [_rule_row(name, rule) for name, rule in judged.items()],
    )
    output.say(f"Told by producers themselves: {', '.join(sorted(book.rules.keys() - judged.keys()))}.")
    for item in quiet:
        about = f"{item.rule} for {item.subject}" if item.subject else item.rule
        output.say(f"Silenced until {output.moment(item.until)} by {item.who}: {about}. {item.why}".rstrip())
    for row in routes:
        output.say(_route_line(row))


@alerts.command(short_help="Whether a file of rules is right.")
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Whether FILE is right: each mistake with its rule, its line and what would be right. Exit code 2 if it is not."""
    from producer_core.alerts import load
    from producer_core.alerts.routes import missing_addresses
    from producer_core.alerts.rules import RULES

    book = load(file)
    own = [name for name in book.rules if name not in RULES]
    changed = [name for name in RULES if book.rules[name] != RULES[name]]
    output.say(
        f"{file.name} is right: {output.count(len(own), 'rule')} of your own, "
        f"{output.count(len(changed), 'built-in rule')} changed, {output.count(len(book.routes), 'route')}."
    )
    for settings in missing_addresses(book):
        source = f"${settings.url_env}" if settings.url_env else settings.url_file
        output.say(f"  The route {settings.name} has no address here: {source} is empty.")


@alerts.command(short_help="Judge alerts and tell people, until stopped.")
@options.store_option
def run(store_path: Path | None) -> None:
    """Judge a store's alerts and tell people, until stopped with Ctrl-C.

    Run it wherever the store is and alerts must be judged while no producer and no dashboard runs. Several do no
    harm: one judges, the others stand by.
    """
    from producer_core._internal.stop_signal import StopSignal
    from producer_core.alerts import AlertWatcher

    stop = StopSignal()
    store = _store(store_path)
    watcher = AlertWatcher(store, heard=_say_changes)
    names = ", ".join(route.name for route in watcher.routes) or "nobody: no route has an address here"
    output.say(f"Watching {store.path}; told: {names}. Stop with Ctrl-C.")
    with watcher:
        stop.wait()


@alerts.command(short_help="Send one test alert and say what came back.")
@click.argument("route", required=False)
@options.store_option
def test(route: str | None, store_path: Path | None) -> None:
    """Send one test alert over ROUTE, or over every route that has an address here; exit code 1 if one fails.

    The test alert is called TestAlert, fires, and is resolved right after. It is written down nowhere.
    """
    from producer_core.alerts import rule_set_of
    from producer_core.alerts.routes import missing_addresses, routes_of

    store = _store(store_path)
    book = rule_set_of(store)
    if book.problem:
        raise Failed(book.problem, "See producer-core alerts check.")
    found = [item for item in routes_of(book) if route in (None, item.name)]
    if not found:
        without = ", ".join(settings.name for settings in missing_addresses(book))
        raise Failed(
            f"There is no route {route!r} with an address here."
            if route
            else "No route has an address here.",
            f"Without an address: {without}."
            if without
            else "Set PRODUCER_CORE_ALERT_WEBHOOK, or write a [routes.name] table.",
        )
    answers = [(item.name, *_try(item, book, str(store.path))) for item in found]
    for name, good, text in answers:
        output.say(f"{name}: {'taken' if good else 'NOT taken'}. {text}")
    if not all(good for _, good, _ in answers):
        raise click.exceptions.Exit(1)


def _try(route: Route, book: RuleSet, store: str) -> tuple[bool, str]:
    """What a receiver says to a test alert that fires and, when that is taken, resolves."""
    from producer_core.alerts.send_test import send_test_alert

    answer = send_test_alert(route, book, store=store, who=options.current_user())
    return answer.taken, f"{answer.text}.{f' It wrote: {answer.body}' if answer.body else ''}"


def _say_changes(changes: Sequence[AlertChange]) -> None:
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


def _row(item: Alert) -> tuple[str | None, ...]:
    state = f"{item.state} (silenced)" if item.silenced else item.state
    if item.muted_by and not item.silenced and item.state == "firing":
        state = f"{item.state} (muted)"
    return (
        item.alert_id,
        item.severity,
        state,
        output.moment(item.started_at),
        item.text,
        item.acknowledged_by,
    )


def _rule_row(name: str, rule: AlertRule) -> tuple[str, ...]:
    from producer_core.alerts.conditions import in_words, span

    condition = in_words(rule.condition) if rule.enabled else "switched off"
    waits = [span(seconds) if seconds else "-" for seconds in (rule.for_, rule.keep_firing_for)]
    return name, rule.severity, condition, *waits


def _rule_json(name: str, rule: AlertRule) -> dict[str, object]:
    from producer_core.alerts.conditions import in_words

    values = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    values["for"] = values.pop("for_")
    return {"name": name, **values, "condition": in_words(rule.condition)}


def _route_line(row: dict[str, object]) -> str:
    told = output.moment(row["told_at"])  # type: ignore[arg-type]  # a DOUBLE of the store, or NULL
    line = f"Route {row['name']}: last told {told}, {row['waiting']} waiting, {row['given_up']} given up."
    if row["failing_since"] is None:
        return line
    return f"{line} Failing since {output.moment(row['failing_since'])}: {row['answer']}"  # type: ignore[arg-type]

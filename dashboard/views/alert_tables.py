"""The other sections of the alerts page: history, rules, silences, and over what people are told."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.alerts import Alert
from producer_core.alerts.conditions import span
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import alerts
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow, live_table
from producer_core.dashboard.queries import alerts as of
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import alert_cards, common, header
from producer_core.dashboard.wording import alerts as said

LOOKS = {"critical": "bad", "warning": "warning", "info": "quiet"}


def history(shown: of.AlertsPage, during: str) -> None:
    if not shown.ended:
        common.note(f"No alert was resolved {during}.")
        return
    _overs(shown, shown.ended)
    if shown.ended_total > len(shown.ended):
        common.note(f"The latest {len(shown.ended):,} of {shown.ended_total:,}.")


def latest(shown: of.AlertsPage) -> None:
    """A few of the history, where nothing fires now."""
    _overs(shown, shown.ended[:5])


def _overs(shown: of.AlertsPage, items: Sequence[Alert]) -> None:
    columns = [
        Column("Began"),
        Column("What", wide=True),
        Column("Lasted", number=True),
        Column("Looked after by"),
    ]
    rows = [_over(item, shown.now, shown.names) for item in items]
    live_table(columns, rows, key="alert_history", alt="Alerts that are over")


def _over(item: Alert, now: float, names: Mapping[str, str]) -> TableRow:
    begun = item.fired_at if item.fired_at is not None else item.started_at
    when = wording.stamp(begun, common.zone(), now)
    what = [
        TablePart(alert_cards.alert_text(item, now), look=LOOKS.get(item.severity, "quiet"), href=header.link("alerts", alert=item.alert_id)),  # type: ignore[arg-type]  # a Look
        TablePart(f"{item.severity} · {item.rule} · {names.get(item.subject, item.subject)}", look="small"),
    ]  # fmt: skip
    lasted = wording.age((item.resolved_at or now) - begun)
    return TableRow(
        item.alert_id, (TablePart(when.text, more=when.more), what, lasted, item.acknowledged_by or "–")
    )


def rules(shown: of.AlertsPage) -> None:
    file = shown.file
    if file.path is None:
        common.note(
            "The built-in rules hold. Rules and routes of your own stand in alerts.toml beside the store, or in the "
            "file that $PRODUCER_CORE_ALERTS names."
        )
    else:
        common.note(f"Rules of {file.path.name}.", more=str(file.path))
    columns = [
        Column("Rule", wide=True), Column("State"), Column("Fires when", wide=True), Column("What to do", wide=True),
        Column("Fired last"),
    ]  # fmt: skip
    live_table(
        columns,
        [_rule(one, shown.now) for one in shown.rules],
        key="alert_rules",
        alt="The rules of this store",
    )


def _rule(one: of.RuleState, now: float) -> TableRow:
    state, look = said.rule_state(
        one.rule.enabled, one.firing, one.pending, one.episodes, one.silence is not None
    )
    last = TablePart("–")
    if one.last_at is not None:
        when = wording.stamp(one.last_at, common.zone(), now)
        last = TablePart(when.text, more=f"{when.more}; {wording.plural(one.episodes, 'time')} in all")
    cells = (
        [TablePart(one.name, look="strong"), TablePart(one.rule.severity, look="small")],
        TablePart(state.replace(" ", "\u00a0"), look=LOOKS[one.rule.severity] if look == "bad" else look),  # type: ignore[arg-type]  # a Look
        wording.sentence_case(said.rule_condition(one.rule)),
        one.rule.advice,
        last,
    )
    return TableRow(one.name, cells)


def silences(path: Path, shown: of.AlertsPage) -> None:
    allowed, reason = actions.may_act()
    if not shown.silences:
        common.note("Nothing is silenced. A silenced alert fires and resolves as ever; nobody is told of it.")
    for number, one in enumerate(shown.silences):
        with st.container(horizontal=True, vertical_alignment="center", key=f"pc-hush-{number}"):
            st.html(
                f'<p class="pc-fact"><span>{html.escape(said.silence_subject(one))}</span><br>'
                f"{html.escape(said.silenced(one, shown.now, wording.stamp(one.until, common.zone(), shown.now).text))}</p>"
            )
            st.button(
                "End it", key=f"unsilence-{one.rule}-{one.subject}-{one.created_at}", disabled=not allowed,
                help=None if allowed else reason,
                on_click=alert_cards.act, args=(path, alerts.unsilence, one.rule, one.subject),
            )  # fmt: skip
    common.heading("Silence a rule")
    if not allowed:
        common.note(reason)
        return
    names = [one.name for one in shown.rules if one.rule.enabled]
    rule = st.selectbox("Rule", names, key="silence_rule", index=None, placeholder="Choose a rule", width=420)
    if rule:
        alert_cards.silence_form(path, "of-a-rule", rule, "")


def routes(path: Path, shown: of.AlertsPage) -> None:
    """Over what people are told, whether that works, and what could not be told."""
    file = shown.file
    if not shown.routes:
        common.say(
            "warning",
            "Nobody is told of alerts: there is no route. Set PRODUCER_CORE_ALERT_WEBHOOK to the address of a webhook "
            "that takes Alertmanager's payload, or write a [routes.name] table into alerts.toml.",
        )
    for route in shown.routes:
        _route(path, route, shown.now)
    again = f"every {span(file.repeat)}" if file.repeat else "never"
    common.note(
        f"What fires and nobody has acknowledged is told again {again}."
        + ("" if file.link else " Notifications have no link to this page: set link in alerts.toml.")
    )
    if shown.undelivered:
        _untold(shown)


def _route(path: Path, route: of.RouteState, now: float) -> None:
    failing = wording.age(now - route.failing_since) if route.failing_since is not None else ""
    tone, text = said.route_state(
        route.told_at is not None,
        failing and f"{failing} ago",
        route.waiting,
        route.given_up,
        route.answer or "no answer",
    )
    allowed, reason = actions.may_act()
    trying, tried = alerts.route_tests().result(opened(path), route.name)
    with st.container(key=f"pc-route-{route.name}"):
        common.say(tone, f"{route.name}: {mask_text(text)}")
        facts = [
            route.kind or "of another process",
            route.source and f"address from {route.source}",
            route.severities and f"for {', '.join(route.severities)}",
            route.heartbeat and f"a sign of life every {span(route.heartbeat)}",
            route.told_at is not None and f"told last {wording.age(now - route.told_at)} ago",
        ]
        common.note(" · ".join(fact for fact in facts if fact))
        why_not = reason if not allowed else "" if route.here else "This server does not have its address."
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Send a test", key=f"test-{route.name}", disabled=bool(why_not) or trying, help=why_not or None,
                on_click=alert_cards.act, args=(path, alerts.try_route, route.name),
            )  # fmt: skip
            if trying:
                common.note("A test is on its way …")
            elif tried is not None:
                common.note(mask_text(tried.text))
            elif why_not:
                common.note(why_not)


def _untold(shown: of.AlertsPage) -> None:
    common.heading("What could not be told")
    columns = [Column("Since"), Column("What", wide=True), Column("Over"), Column("Attempts", number=True), Column("Why", wide=True)]  # fmt: skip
    rows = []
    for row in shown.undelivered:
        when = wording.stamp(row["queued_at"], common.zone(), shown.now)
        given_up = row["settled_at"] is not None
        waits = row["next_at"] - shown.now
        further = (
            "given up" if given_up else f"next in {wording.age(waits)}" if waits > 1 else "waits for its turn"
        )
        what = [
            TablePart(mask_text(row["text"]), href=header.link("alerts", alert=row["alert_id"])),
            TablePart(
                f"{said.NOTIFICATION_KINDS.get(row['status'], row['status'])} · {row['rule']}", look="small"
            ),
        ]
        why = [TablePart(mask_text(row["answer"] or "not tried yet")), TablePart(further, look="small")]
        rows.append(
            TableRow(
                f"{row['route']}-{row['alert_id']}-{row['status']}",
                (TablePart(when.text, more=when.more), what, row["route"], str(row["attempts"]), why),
            )
        )
    live_table(columns, rows, key="alert_untold", alt="What could not be told")

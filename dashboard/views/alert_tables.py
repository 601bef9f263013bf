"""Draw the history, rules, silences and notification routes of the alerts page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.alerts import Alert
from producer_core.alerts.conditions import span
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import action_code, alerts
from producer_core.dashboard.components.live_table import (
    Cell,
    Column,
    TablePart,
    TableRow,
    TextStyle,
    live_table,
)
from producer_core.dashboard.queries import alerts as alert_queries
from producer_core.dashboard.queries.alert_history import RepeatedAlert
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, alert_cards, common, header
from producer_core.dashboard.wording import alerts as alert_wording

_STYLES: Mapping[str, TextStyle] = {"critical": "bad", "warning": "warning", "info": "quiet"}


def history(page: alert_queries.AlertsPage, during: str) -> None:
    """Draw the resolved alerts; repeats of a rule and subject are one row."""
    found = page.history
    if not found.alerts:
        common.note(f"No alert was resolved {during}.")
        return
    _resolved_alerts(page, found.alerts)
    if found.total > found.listed:
        common.note(f"Showing the latest {found.listed:,} of {found.total:,}.")


def latest(page: alert_queries.AlertsPage) -> None:
    """Draw the last resolved alerts."""
    _resolved_alerts(page, page.history.alerts[:5])


def _resolved_alerts(page: alert_queries.AlertsPage, items: Sequence[RepeatedAlert]) -> None:
    columns = [
        Column("Last started"),
        Column("Alert", wide=True),
        Column("Times", number=True, tooltip="How often the alert fired for this subject in the range."),
        Column("Duration", number=True),
        Column("Acknowledged by"),
    ]
    rows = [_resolved(item, page.now, page.names) for item in items]
    live_table(columns, rows, key="alert_history", alt="Resolved alerts, repeats of an alert in one row")


def _resolved(found: RepeatedAlert, now: float, names: Mapping[str, str]) -> TableRow:
    item = found.latest
    started = item.fired_at if item.fired_at is not None else item.started_at
    text = [
        TablePart(alert_cards.alert_text(item, now), style=_STYLES.get(item.severity, "quiet"), href=header.link("alerts", alert=item.alert_id)),
        TablePart(f"{item.severity} · {item.rule} · {names.get(item.subject, item.subject)}", style="small"),
    ]  # fmt: skip
    return TableRow(
        f"{item.rule} {item.subject}",
        (
            _moment(started, now),
            text,
            _times(found, now),
            _durations(found, (item.resolved_at or now) - started),
            item.acknowledged_by or "–",
        ),
    )


def _times(found: RepeatedAlert, now: float) -> Cell:
    if found.episodes == 1:
        return "1"
    first = wording.stamp(found.first_at, common.zone(), now)
    return f"{found.episodes:,}", TablePart(f"since {first.text}", style="small", tooltip=first.more)


def _durations(found: RepeatedAlert, last: float) -> Cell:
    if found.episodes == 1:
        return wording.age(last)
    together = alert_wording.durations(found.lasted, found.longest)
    return wording.age(last), TablePart(together, style="small")


def _moment(at: float, now: float) -> TablePart:
    when = wording.stamp(at, common.zone(), now)
    return TablePart(when.text, tooltip=when.more)


def episodes(detail: alert_queries.AlertDetail) -> None:
    """Draw the other episodes of the rule and subject."""
    others = [one for one in detail.episodes if one.alert_id != detail.alert.alert_id]
    if not others:
        return
    common.heading("Other times")
    columns = [Column("Started"), Column("Alert", wide=True), Column("Duration", number=True), Column("Acknowledged by")]  # fmt: skip
    live_table(
        columns,
        [_episode(one, detail.now) for one in others],
        key="alert_episodes",
        alt="Other times at which this alert fired, latest first",
    )
    if detail.episodes_total > len(detail.episodes):
        common.note(f"Showing the latest {len(detail.episodes):,} of {detail.episodes_total:,} times.")


def _episode(item: Alert, now: float) -> TableRow:
    started = item.fired_at if item.fired_at is not None else item.started_at
    lasted = wording.age((item.resolved_at or now) - started)
    text = TablePart(alert_cards.alert_text(item, now), href=header.link("alerts", alert=item.alert_id))
    return TableRow(
        item.alert_id,
        (
            _moment(started, now),
            text,
            lasted if item.resolved_at is not None else f"{lasted}, firing",
            item.acknowledged_by or "–",
        ),
    )


def rules(page: alert_queries.AlertsPage) -> None:
    file = page.file
    if file.path is None:
        common.note(
            "The built-in rules apply. To add rules and routes, create alerts.toml beside the store, or set "
            "PRODUCER_CORE_ALERTS to the path of a rules file."
        )
    else:
        common.note(f"Rules from {file.path.name}.", tooltip=str(file.path))
    columns = [
        Column("Rule", wide=True), Column("State"), Column("Condition", wide=True), Column("What to do", wide=True),
        Column("Last fired"),
    ]  # fmt: skip
    live_table(
        columns,
        [_rule(one, page.now) for one in page.rules],
        key="alert_rules",
        alt="Alert rules",
    )


def _rule(one: alert_queries.RuleState, now: float) -> TableRow:
    state, style = alert_wording.rule_state(
        one.rule.enabled, one.firing, one.pending, one.episodes, one.silence is not None
    )
    shown_style = _STYLES[one.rule.severity] if style == "bad" else cast("TextStyle", style)
    last = TablePart("–")
    if one.last_at is not None:
        when = wording.stamp(one.last_at, common.zone(), now)
        last = TablePart(when.text, tooltip=f"{when.more}; {wording.plural(one.episodes, 'time')} in total")
    cells = (
        [TablePart(one.name, style="strong"), TablePart(one.rule.severity, style="small")],
        TablePart(state.replace(" ", "\u00a0"), style=shown_style),
        wording.sentence_case(alert_wording.rule_condition(one.name, one.rule)),
        one.rule.advice,
        last,
    )
    return TableRow(one.name, cells)


def silences(path: Path, page: alert_queries.AlertsPage) -> None:
    allowed, reason = actions.may_act(path)
    if not page.silences:
        common.note("No silences. A silenced alert still fires and resolves, but sends no notifications.")
    for number, one in enumerate(page.silences):
        until = wording.stamp(one.until, common.zone(), page.now).text
        with st.container(horizontal=True, vertical_alignment="center", key=f"pc-silence-{number}"):
            common.fact(alert_wording.silence_subject(one), alert_wording.silenced(one, page.now, until))
            st.button(
                "End the silence", key=f"unsilence-{one.rule}-{one.subject}-{one.created_at}", disabled=not allowed,
                help=None if allowed else reason,
                on_click=alert_cards.act, args=(path, alerts.unsilence, one.rule, one.subject),
            )  # fmt: skip
            code = action_code.unsilence(path, one.rule, one.subject)
            action_menu.draw(
                path,
                {"End the silence": code},
                key=f"unsilence-code-{one.rule}-{one.subject}-{one.created_at}",
            )
    common.heading("Silence a rule")
    if not allowed:
        common.note(reason)
        return
    names = [one.name for one in page.rules if one.rule.enabled]
    rule = st.selectbox("Rule", names, key="silence_rule", index=None, placeholder="Select a rule", width=420)
    if rule:
        alert_cards.silence_form(path, "of-a-rule", rule, "")


def routes(path: Path, page: alert_queries.AlertsPage) -> None:
    """Draw the notification routes, their state, and the notifications that were not delivered."""
    file = page.file
    if not page.routes:
        common.message(
            "warning",
            "No notifications are sent because no route is configured. Set PRODUCER_CORE_ALERT_WEBHOOK to a webhook that "
            "accepts Alertmanager's payload, set PRODUCER_CORE_ALERTMANAGER to the URL of an Alertmanager, or add a "
            "[routes.name] table to alerts.toml.",
        )
    for route in page.routes:
        _route(path, route, page.now)
    repeat = f"are repeated every {span(file.repeat)}" if file.repeat else "are not repeated"
    common.note(
        f"Notifications for unacknowledged firing alerts {repeat}."
        + ("" if file.link else " They contain no link to this page; to add one, set link in alerts.toml.")
    )
    if page.undelivered:
        _undelivered(page)


def _route(path: Path, route: alert_queries.RouteState, now: float) -> None:
    failing = wording.age(now - route.failing_since) if route.failing_since is not None else ""
    tone, text = alert_wording.route_state(
        route.told_at is not None,
        failing and f"{failing} ago",
        route.waiting,
        route.given_up,
        route.answer or "no response",
    )
    allowed, no_right = actions.may_act(path)
    in_progress, last = alerts.route_tests().result(open_store(path), route.name)
    with st.container(key=f"pc-route-{route.name}"):
        common.message(tone, f"{route.name}: {mask_text(text)}")
        facts = [
            route.kind or "configured in another process",
            route.source and f"URL from {route.source}",
            route.severities and f"for {', '.join(route.severities)}",
            route.heartbeat and f"heartbeat every {span(route.heartbeat)}",
            route.told_at is not None and f"last delivery {wording.age(now - route.told_at)} ago",
        ]
        common.note(" · ".join(fact for fact in facts if fact))
        reason = (
            no_right if not allowed else "" if route.here else "This server does not have the route's URL."
        )
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Send a test", key=f"test-{route.name}", disabled=bool(reason) or in_progress, help=reason or None,
                on_click=alert_cards.act, args=(path, alerts.send_test, route.name),
            )  # fmt: skip
            if in_progress:
                common.note("Sending a test alert …")
            elif last is not None:
                common.note(mask_text(last.text))
            elif reason:
                common.note(reason)


def _undelivered(page: alert_queries.AlertsPage) -> None:
    common.heading("Undelivered notifications")
    columns = [Column("Since"), Column("Alert", wide=True), Column("Route"), Column("Attempts", number=True), Column("Error", wide=True)]  # fmt: skip
    rows = []
    for row in page.undelivered:
        when = wording.stamp(row["queued_at"], common.zone(), page.now)
        text = [
            TablePart(mask_text(row["text"]), href=header.link("alerts", alert=row["alert_id"])),
            TablePart(
                f"{alert_wording.NOTIFICATION_KINDS.get(row['status'], row['status'])} · {row['rule']}",
                style="small",
            ),
        ]
        error = [
            TablePart(mask_text(row["answer"] or "no attempt yet")),
            TablePart(_next_attempt(row, page.now), style="small"),
        ]
        rows.append(
            TableRow(
                f"{row['route']}-{row['alert_id']}-{row['status']}",
                (TablePart(when.text, tooltip=when.more), text, row["route"], str(row["attempts"]), error),
            )
        )
    live_table(columns, rows, key="alert_undelivered", alt="Undelivered notifications")


def _next_attempt(row: Mapping[str, Any], now: float) -> str:
    if row["settled_at"] is not None:
        return "dropped"
    wait = row["next_at"] - now
    return f"next attempt in {wording.age(wait)}" if wait > 1 else "next attempt is due"

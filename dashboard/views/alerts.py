"""Draw the alerts page: firing alerts, history, rules, notifications and silences."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.alerts.alert_groups import alert_groups
from producer_core.dashboard import queries, wording
from producer_core.dashboard.components import live_table
from producer_core.dashboard.queries import alerts as alert_queries
from producer_core.dashboard.theme import style_sheet
from producer_core.dashboard.views import alert_cards, alert_detail, alert_reads, alert_tables, common, header
from producer_core.dashboard.wording import alerts as alert_wording

SECTIONS = ("Now", "History", "Rules", "Notifications", "Silences")


def show(path: Path) -> None:
    view = header.view(path, "Alerts")
    st.html(f"<style>{style_sheet('alerts')}</style>")
    live_table.load_style_sheet()
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: queries.View) -> None:
    with common.panel(path):
        page = alert_reads.alerts(path, view)
        _summary(page)
        alert_cards.result()
        if alert_id := st.query_params.get("alert"):
            alert_detail.show(path, alert_id)
        else:
            _section(path, view, page)


def _summary(page: alert_queries.AlertsPage) -> None:
    alive = page.evaluator is not None and page.evaluator.alive
    enabled = sum(one.rule.enabled for one in page.rules)
    common.message(
        *alert_wording.alerts_sentence(page.firing, len(page.pending), page.elsewhere, alive, enabled)
    )
    for line in page.file.problem:
        common.message("bad", line.strip())
    if page.file.problem:
        common.note("The built-in rules apply until the file is valid. Changes are picked up automatically.")
    notes = [
        alert_wording.route_failing(route.name, wording.age(page.now - since))
        for route, since in page.failing
    ]
    if not page.routes:
        notes.append("No notifications are sent because no route is configured; see Notifications.")
    if page.evaluator is not None:
        notes.append(alert_wording.evaluator_note(page.evaluator.name, alive=alive, here=page.evaluator.here))
    common.note(" ".join(notes))


def _section(path: Path, view: queries.View, page: alert_queries.AlertsPage) -> None:
    section = st.segmented_control(
        "Section", SECTIONS, default=SECTIONS[0], key="show", bind="query-params", required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    now = time.time()
    if section == "History":
        alert_tables.history(page, wording.during(view.window, view.since(now), view.at(now), common.zone()))
    elif section == "Rules":
        alert_tables.rules(page)
    elif section == "Notifications":
        alert_tables.routes(path, page)
    elif section == "Silences":
        alert_tables.silences(path, page)
    else:
        _current(path, page)


def _current(path: Path, page: alert_queries.AlertsPage) -> None:
    shown = page.shown
    alert_cards.cards(path, page, shown[: alert_queries.SHOWN])
    if hidden := shown[alert_queries.SHOWN :]:
        common.note(alert_wording.more_firing(sum(len(group.alert_ids) for group in hidden)))
    if page.pending:
        common.heading("Pending alerts")
        alert_cards.cards(path, page, alert_groups(page.pending[: alert_queries.SHOWN]))
    if not page.firing and page.history.alerts:
        common.heading("Last resolved alerts")
        alert_tables.latest(page)

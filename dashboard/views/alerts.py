"""The alerts page: what fires and what to do, and its history, rules, silences and routes."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.components import live_table
from producer_core.dashboard.queries import alerts as of
from producer_core.dashboard.theme import style_sheet
from producer_core.dashboard.views import alert_cards, alert_detail, alert_reads, alert_tables, common, header
from producer_core.dashboard.wording import alerts as said

SECTIONS = ("Now", "History", "Rules", "Notifications", "Silences")


def show(path: Path) -> None:
    view = header.view(path, "Alerts")
    st.html(f"<style>{style_sheet('alerts')}</style>")
    live_table.style()
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: queries.View) -> None:
    with common.panel(path):
        shown = alert_reads.alerts(path, view)
        _how_things_stand(shown)
        alert_cards.result()
        if asked := st.query_params.get("alert"):
            alert_detail.show(path, asked)
        else:
            _section(path, view, shown)


def _how_things_stand(shown: of.AlertsPage) -> None:
    alive = shown.evaluator is not None and shown.evaluator.alive
    enabled = sum(one.rule.enabled for one in shown.rules)
    common.say(*said.alerts_sentence(shown.firing, len(shown.pending), shown.elsewhere, alive, enabled))
    for line in shown.file.problem:
        common.say("bad", line.strip())
    if shown.file.problem:
        common.note("Until the file is right the built-in rules hold; it is read again by itself.")
    notes = [said.route_failing(route.name, wording.age(shown.now - since)) for route, since in shown.failing]
    if not shown.routes:
        notes.append("Nobody is told of alerts: there is no route (see Notifications).")
    if shown.evaluator is not None:
        notes.append(said.evaluator_note(shown.evaluator.name, alive=alive, here=shown.evaluator.here))
    common.note(" ".join(notes))


def _section(path: Path, view: queries.View, shown: of.AlertsPage) -> None:
    chosen = st.segmented_control(
        "Section", SECTIONS, default=SECTIONS[0], key="show", bind="query-params", required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    now = time.time()
    if chosen == "History":
        alert_tables.history(shown, wording.during(view.window, view.since(now), view.at(now), common.zone()))
    elif chosen == "Rules":
        alert_tables.rules(shown)
    elif chosen == "Notifications":
        alert_tables.routes(path, shown)
    elif chosen == "Silences":
        alert_tables.silences(path, shown)
    else:
        _now(path, shown)


def _now(path: Path, shown: of.AlertsPage) -> None:
    alert_cards.cards(path, shown, shown.firing[: of.SHOWN])
    if len(shown.firing) > of.SHOWN:
        common.note(f"{len(shown.firing) - of.SHOWN:,} more fire; choose a topic above, or see Rules.")
    if shown.pending:
        common.heading("Waits to fire")
        alert_cards.cards(path, shown, shown.pending[: of.SHOWN])
    if not shown.firing and shown.ended:
        common.heading("The last that were resolved")
        alert_tables.latest(shown)

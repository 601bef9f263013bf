"""Draw the settings page: doctor and retention first, then limits, rules and access, and internals last."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import roles
from producer_core.dashboard.auth import access
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow, TextStyle
from producer_core.dashboard.html import Node, node
from producer_core.dashboard.queries.settings import SettingsPage
from producer_core.dashboard.server import doctor_run, replay_worker
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import (
    common,
    header,
    objectives,
    reads,
    retention,
    setting_table,
    settings_reads,
)
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dashboard.wording import settings as settings_wording
from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.dlq.approvals.enforcement import enforcement
from producer_core.errors import ProducerError

REFRESH = 5.0
_DOCTOR_REFRESH = 0.7
_MAX_TOPICS = 10
_LEVELS: Mapping[str, tuple[TextStyle, str]] = {
    "ok": ("good", "OK"), "warning": ("warning", "Warning"), "problem": ("bad", "Problem"),
}  # fmt: skip


def show(path: Path) -> None:
    header.title("Settings")
    live_table.load_style_sheet()
    with common.panel(path):
        _doctor(path)
    retention.show(path, REFRESH)
    objectives.show(path)
    st.fragment(_limits, run_every=REFRESH)(path)
    left, right = st.columns(2, gap="medium")
    with left:
        st.fragment(_rules, run_every=REFRESH)(path)
    with right:
        st.fragment(_access, run_every=REFRESH)(path)
    st.fragment(_internals, run_every=REFRESH)(path)


# limits, rules, access


def _limits(path: Path) -> None:
    page = settings_reads.read(path)
    if page is None:
        return
    setting_table.draw("Dead letter limits", "settings-bounds", page.bounds)
    common.note(settings_wording.LIMITS_NOTE)
    common.note(settings_wording.COMMAND_NOTE)
    values = {one.name: one.value for one in (*page.kept[-1:], *page.bounds[:2])}
    st.code(settings_wording.command(values, str(page.info.path)), language=None, wrap_lines=True)


def _rules(path: Path) -> None:
    page = settings_reads.read(path)
    if page is not None:
        _alerts(page)
        _masking(page)


def _access(path: Path) -> None:
    common.heading("Access")
    rules = access.guard().rules
    allowed, reason = actions.may_act(path)
    _facts(
        "settings-access",
        ("Address", settings_wording.listen_address(str(st.get_option("server.address") or ""))),
        ("Sign-in", settings_wording.sign_in_policy(passwords=len(rules.passwords), oidc=rules.oidc)),
        ("Your permissions", f"{access.user()} can make changes" if allowed else reason),
        ("Approval of replays", _approvals(path)),
        ("Replays", _replays(path)),
    )


def _approvals(path: Path) -> str:
    """Return the rules of the approval policy, whether the system enforces them, and the role of the user."""
    try:
        store = open_store(path)
        policy = roles.policy(store)
    except ProducerError as error:
        return str(error)
    if policy is None:
        return settings_wording.NO_POLICY
    level = enforcement(store.path, policy.source).level
    return f"{policy.summary} Your role: {policy.role_of(roles.identity(policy))}. For the server's user: {level}."


def _replays(path: Path) -> str:
    worker = replay_worker.worker_of(path)
    if worker is None:
        return replay_wording.runner_setup(replay_worker.VARIABLE)
    return replay_wording.runner_setup(
        replay_worker.VARIABLE, str(worker.settings.file), worker.settings.servers, mask_text(worker.problem)
    )


def _alerts(page: SettingsPage) -> None:
    rules = page.alerts
    common.heading("Alert rules")
    if rules.problem:
        common.message("bad", f"{rules.problem} The built-in rules apply.")
    file = (
        rules.path
        or f"none, only built-in rules (set {rules.variable}, or create alerts.toml beside the store)"
    )
    _facts(
        "settings-alerts",
        ("File", file),
        ("Rules", settings_wording.alert_rules(rules.rules, rules.switched_off, rules.routes)),
    )


def _masking(page: SettingsPage) -> None:
    masking = page.masking
    common.heading("Masking")
    common.note(settings_wording.ALWAYS_MASKED)
    lists = (
        ("Also masked", masking.rules.names),
        ("Patterns", masking.rules.patterns),
        ("Not masked", masking.rules.open),
        ("Hidden completely", masking.rules.hide),
    )
    file = masking.path if masking.exists else f"none at {masking.path}"
    _facts("settings-masking", ("File", file), *((name, ", ".join(items)) for name, items in lists if items))


# the doctor


def _doctor(path: Path) -> None:
    common.heading("Doctor")
    common.note("Checks brokers, settings, store, disk, clock and Java without changing anything.")
    page, run = settings_reads.read(path), doctor_run.latest(path)
    allowed, reason = access.may_act()
    busy = st.session_state["doctor-busy"] = run is not None and not run.finished
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        topics = st.multiselect(
            "Topics to check",
            reads.topics(path),
            key="doctor-topics",
            placeholder="Topics to check",
            max_selections=_MAX_TOPICS,
            label_visibility="collapsed",
            disabled=busy,
            width=280,
        )
        st.button(
            "Run doctor",
            key="run-doctor",
            disabled=busy or not allowed or page is None,
            help=None if allowed else reason,
            on_click=_run_doctor,
            args=(path, page, tuple(topics)),
        )
    st.fragment(_doctor_progress, run_every=_DOCTOR_REFRESH)(path)


def _doctor_progress(path: Path) -> None:
    """Draw the findings as they appear, and enable the button again when the run has finished."""
    run = doctor_run.latest(path)
    if run is not None:
        _findings(run, time.time())
        if run.finished and st.session_state.get("doctor-busy"):
            st.session_state["doctor-busy"] = False
            st.rerun()


def _run_doctor(path: Path, page: SettingsPage | None, topics: tuple[str, ...]) -> None:
    """Start the doctor. The right is checked again, because it may have been revoked after the button was drawn."""
    if access.may_act()[0]:
        doctor_run.begin(path, page.reaches[0] if page is not None and page.reaches else None, topics)


def _findings(run: doctor_run.DoctorRun, now: float) -> None:
    findings = run.findings
    if run.ended_at is None:
        common.message(
            "quiet", settings_wording.doctor_progress(len(findings), now - run.started_at, run.servers)
        )
    else:
        levels = [one.level for one in findings]
        problems, warnings = levels.count("problem"), levels.count("warning")
        took = run.ended_at - run.started_at
        common.message(*settings_wording.doctor_result(problems, warnings, len(findings), took))
    columns = (Column("Check"), Column("Finding", wide=True))
    rows = [_finding(number, one) for number, one in enumerate(findings)]
    if rows:
        live_table.live_table(columns, rows, key="settings-doctor", alt="Doctor findings, worst first")


def _finding(number: int, one: DoctorFinding) -> TableRow:
    style, level = _LEVELS[one.level]
    lines: list[str | TablePart] = [one.text]
    if one.fix and one.level != "ok":
        lines.append(TablePart(f"What to do: {one.fix}", "small"))
    check = (TablePart(one.check, "strong"), TablePart(level, style))
    return TableRow(f"{number} {one.check}", (check, lines))


# internals


def _internals(path: Path) -> None:
    page = settings_reads.read(path)
    if page is None:
        return
    left, right = st.columns(2, gap="medium")
    with left:
        common.heading("Store")
        _facts("settings-store", *_store(page))
        common.heading("Versions")
        _facts("settings-versions", *page.versions.items())
    with right:
        _rows(page)


def _store(page: SettingsPage) -> list[tuple[str, str]]:
    info, zone = page.info, common.zone()
    span = "none yet"
    if info.oldest is not None and info.newest is not None:
        ends = (wording.stamp(at, zone, page.now).text for at in (info.oldest, info.newest))
        span = " to ".join(ends)
    pending = f"{page.load.dead_letters:,} pending, {wording.size(page.load.bytes)}"
    unsafe = f"{info.network_file_system}: file locks are unsafe. Move the store to a local disk."
    return [
        ("File", str(info.path)),
        ("Size", f"{wording.size(info.bytes)}; {wording.size(page.free)} free on the disk"),
        ("Schema", f"version {info.schema_version}"),
        ("Statistics", span),
        ("Dead letters", pending if page.load.dead_letters else "none pending"),
        ("File system", unsafe if info.network_file_system else "local"),
    ]


def _rows(page: SettingsPage) -> None:
    common.heading("Rows")
    filled = [(name, number) for name, number in page.info.rows.items() if number]
    columns = (Column("Table"), Column("Rows", number=True))
    rows = [TableRow(name, (TablePart(name, "mono"), wording.count(number))) for name, number in filled]
    live_table.live_table(columns, rows, key="settings-rows", alt="Rows by table")
    if empty := len(page.info.rows) - len(filled):
        common.note(f"{wording.plural(empty, 'empty table')} not shown.")


def _facts(key: str, *facts: tuple[str, str]) -> None:
    live_dom(facts_of(facts), key=key)


def facts_of(facts: Sequence[tuple[str, str]]) -> Node:
    parts = [part for name, text in facts for part in (node("dt", name), node("dd", text))]
    return node("dl", *parts, class_="pc-facts")

"""The settings page: the store, what is kept and for how long, versions, rules, access, and the doctor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.auth import access
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow
from producer_core.dashboard.html import Node, node
from producer_core.dashboard.queries.settings import SettingsPage, StoreSetting, settings
from producer_core.dashboard.server import doctor_run, replay_worker
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import adaptive_cache, common, header, reads
from producer_core.dashboard.wording import replays
from producer_core.dashboard.wording import settings as say
from producer_core.diagnostics.doctor.finding import DoctorFinding

REFRESH = 5.0
_FOLLOW = 0.7
_MOST_TOPICS = 10
_SAYS = {"ok": ("good", "Well"), "warning": ("warning", "Warning"), "problem": ("bad", "Problem")}


def show(path: Path) -> None:
    header.title("Settings")
    live_table.style()
    left, right = st.columns(2, gap="medium")
    with left:
        st.fragment(_store, run_every=REFRESH)(path)
    with right:
        with common.panel(path):
            _doctor(path)
        st.fragment(_beside, run_every=REFRESH)(path)
    st.fragment(_rules, run_every=REFRESH)(path)


@st.cache_data(ttl=2.0, max_entries=8, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def look(path: Path) -> SettingsPage:
    """Once for all browsers, and for all parts of the page."""
    return settings(opened(path), time.time())


def _read(path: Path) -> SettingsPage | None:
    return adaptive_cache.read(path, "settings", path, lambda: look(path))


# the store


def _store(path: Path) -> None:
    shown = _read(path)
    if shown is None:
        return
    info, zone = shown.info, common.zone()
    common.heading("Store")
    span = "none yet"
    if info.oldest is not None and info.newest is not None:
        ends = (wording.stamp(at, zone, shown.now).text for at in (info.oldest, info.newest))
        span = " to ".join(ends)
    _facts(
        "settings-store",
        ("File", str(info.path)),
        ("Size", f"{wording.size(info.bytes)}, and {wording.size(shown.free)} free on its disk"),
        ("Schema", f"version {info.schema_version}"),
        ("Statistics", span),
        ("Dead letters", f"{wording.plural(shown.load.dead_letters, 'dead letter')} wait, {wording.size(shown.load.bytes)}" if shown.load.dead_letters else "none wait"),
        ("File system", f"{info.network_file_system}: locks are unsafe there, move it to a local disk" if info.network_file_system else "local"),
    )  # fmt: skip
    common.heading("Rows")
    held = [(name, number) for name, number in info.rows.items() if number]
    columns = (Column("Table"), Column("Rows", number=True))
    rows = [TableRow(name, (TablePart(name, "mono"), wording.count(number))) for name, number in held]
    live_table.live_table(columns, rows, key="settings-rows", alt="Rows by table")
    if empty := len(info.rows) - len(held):
        common.note(f"{wording.plural(empty, 'table')} more, without a row.")


def _beside(path: Path) -> None:
    shown = _read(path)
    if shown is None:
        return
    common.heading("Versions")
    _facts("settings-versions", *shown.versions.items())
    common.heading("Access")
    admission = access.guard().admission
    may, why = access.may_act()
    _facts(
        "settings-access",
        ("Address", say.listen_address(str(st.get_option("server.address") or ""))),
        ("Sign-in", say.sign_in_policy(passwords=len(admission.passwords), oidc=admission.oidc)),
        ("You", f"{access.user()} may act" if may else why),
        ("Replays", _replays(path)),
    )


def _replays(path: Path) -> str:
    hands = replay_worker.carries(path)
    if hands is None:
        return replays.runner_setup(replay_worker.VARIABLE)
    return replays.runner_setup(
        replay_worker.VARIABLE, str(hands.given.file), hands.given.servers, mask_text(hands.problem)
    )


# what is kept, bounds, rules


def _rules(path: Path) -> None:
    shown = _read(path)
    if shown is None:
        return
    _kept("How long things are kept", "settings-kept", shown.kept)
    common.note(say.NEVER_DELETED)
    _kept("Bounds of the dead letters that wait", "settings-bounds", shown.bounds)
    common.note(say.LIMITS_NOTE)
    common.heading("How to change them")
    common.note(
        "For everyone who uses this store; written to the audit. «default» goes back, «none» takes a bound away."
    )
    values = {one.name: one.value for one in (*shown.kept[-1:], *shown.bounds[:2])}
    st.code(say.command(values, str(shown.info.path)), language=None, wrap_lines=True)
    _alerts(shown)
    _masking(shown)


def _kept(title: str, key: str, kept: Sequence[StoreSetting]) -> None:
    common.heading(title)
    columns = (Column("Setting"), Column("What"), Column("Now"), Column("Default"))
    rows = [
        TableRow(
            one.name,
            (
                TablePart(one.name, "mono"),
                say.MEANINGS[one.name],
                [
                    TablePart(say.setting(one.name, one.value), "strong"),
                    *([TablePart("set", "badge")] if one.changed else []),
                ],
                TablePart(say.setting(one.name, one.default), "small"),
            ),
        )
        for one in kept
    ]
    live_table.live_table(columns, rows, key=key, alt=title)


def _alerts(shown: SettingsPage) -> None:
    rules = shown.alerts
    common.heading("Alert rules")
    if rules.problem:
        common.say("bad", f"{rules.problem} The built-in rules hold.")
    file = rules.path or f"none: only the built-in rules ({rules.variable}, or alerts.toml beside the store)"
    _facts(
        "settings-alerts",
        ("File", file),
        ("Rules", say.alert_rules(rules.rules, rules.switched_off, rules.routes)),
    )


def _masking(shown: SettingsPage) -> None:
    found = shown.masking
    common.heading("Masking")
    common.note(say.ALWAYS_MASKED)
    lists = (
        ("Also hidden", found.rules.names),
        ("Patterns", found.rules.patterns),
        ("Not hidden", found.rules.open),
        ("Hidden altogether", found.rules.hide),
    )
    file = found.path if found.exists else f"none at {found.path}"
    _facts("settings-masking", ("File", file), *((name, ", ".join(items)) for name, items in lists if items))


# the doctor


def _doctor(path: Path) -> None:
    common.heading("Doctor")
    common.note(
        "Looks at brokers, settings, store, disk, clock and Java, and says what to mend. It changes nothing."
    )
    shown, running = _read(path), doctor_run.latest(path)
    may, why = access.may_act()
    busy = st.session_state["doctor-busy"] = running is not None and not running.over
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        topics = st.multiselect(
            "Topics to look at",
            reads.topics(path),
            key="doctor-topics",
            placeholder="Topics to look at",
            max_selections=_MOST_TOPICS,
            label_visibility="collapsed",
            disabled=busy,
            width=280,
        )
        st.button(
            "Examine",
            key="examine",
            disabled=busy or not may or shown is None,
            help=None if may else why,
            on_click=_begin,
            args=(path, shown, tuple(topics)),
        )
    st.fragment(_followed, run_every=_FOLLOW)(path)


def _followed(path: Path) -> None:
    """What is found appears as it is found; when all is there the button works again."""
    running = doctor_run.latest(path)
    if running is not None:
        _findings(running, time.time())
        if running.over and st.session_state.get("doctor-busy"):
            st.session_state["doctor-busy"] = False
            st.rerun()


def _begin(path: Path, shown: SettingsPage | None, topics: tuple[str, ...]) -> None:
    """Asked again on the server: a button may have been drawn before the right was taken away."""
    if access.may_act()[0]:
        doctor_run.begin(path, shown.reaches[0] if shown is not None and shown.reaches else None, topics)


def _findings(running: doctor_run.Examination, now: float) -> None:
    found = running.found
    if running.ended is None:
        common.say("quiet", say.doctor_progress(len(found), now - running.began, running.about))
    else:
        levels = [one.level for one in found]
        took = running.ended - running.began
        common.say(*say.doctor_result(levels.count("problem"), levels.count("warning"), len(found), took))
    columns = (Column("Check"), Column("Finding", wide=True))
    rows = [_finding(place, one) for place, one in enumerate(found)]
    if rows:
        live_table.live_table(
            columns, rows, key="settings-doctor", alt="What the doctor found, the worst first"
        )


def _finding(place: int, one: DoctorFinding) -> TableRow:
    look, word = _SAYS[one.level]
    lines: list[str | TablePart] = [one.text]
    if one.fix and one.level != "ok":
        lines.append(TablePart(f"What to do: {one.fix}", "small"))
    check = (
        TablePart(one.check, "strong"),
        TablePart(word, "good" if look == "good" else "bad" if look == "bad" else "warning"),
    )
    return TableRow(f"{place} {one.check}", (check, lines))


def _facts(key: str, *facts: tuple[str, str]) -> None:
    live_dom(facts_of(facts), key=key)


def facts_of(facts: Sequence[tuple[str, str]]) -> Node:
    parts = [part for name, text in facts for part in (node("dt", name), node("dd", text))]
    return node("dl", *parts, class_="pc-facts")

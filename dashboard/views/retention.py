"""Draw the retention of the settings page, and change it after a confirmation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.queries.settings import SettingsPage, StoreSetting
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, common, setting_table, settings_reads
from producer_core.dashboard.wording import settings as settings_wording
from producer_core.errors import StoreError

_STEP, _CHANGES, _SHOWN, _RESULT = "retention-step", "retention-new", "retention-old", "retention-said"
_EDIT, _REVIEW = "edit", "review"
_CHANGED = "settings-changed"


def show(path: Path, every: float) -> None:
    """Draw the values, which refresh, and below them the form, which does not while it is filled in."""
    st.fragment(_values, run_every=every)(path)
    st.fragment(_change)(path)


def _values(path: Path) -> None:
    page = settings_reads.read(path)
    if page is not None:
        setting_table.draw("Retention", "settings-kept", page.kept)
        common.note(settings_wording.NEVER_DELETED)


def _change(path: Path) -> None:
    if st.session_state.pop(_CHANGED, False):
        st.rerun()  # so that the table shows the new values at once
    if said := st.session_state.get(_RESULT):  # first, because the store may be unavailable after a change
        common.message(*said)
    page = settings_reads.read(path)
    if page is None:
        return
    allowed, reason = actions.may_act(path)
    step = st.session_state.get(_STEP) if allowed else None
    if step == _EDIT:
        _form(path, page.kept)
    elif step == _REVIEW:
        _confirmation(path, page)
    else:
        st.button(
            "Edit retention", key="retention-edit", icon=":material/edit:", disabled=not allowed,
            help=reason or None, on_click=_go_to, args=(_EDIT,),
        )  # fmt: skip


def _go_to(step: str | None) -> None:
    st.session_state[_STEP] = step
    st.session_state.pop(_RESULT, None)


# the form


def _form(path: Path, kept: Sequence[StoreSetting]) -> None:
    with st.container(border=True, key="pc-retention-form"):
        for one in kept:
            _row(one)
        with st.container(horizontal=True, gap="small"):
            st.button("Review change", key="retention-review", type="primary", on_click=_review, args=(kept,))
            st.button("Cancel", key="retention-cancel", on_click=_go_to, args=(None,))


def _row(one: StoreSetting) -> None:
    number, unit = settings_wording.in_unit(one.value or 1.0)
    units = tuple(settings_wording.UNITS)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.number_input(
            one.name, min_value=1.0, step=1.0, format="%g", value=number, key=_number_key(one.name), width=200
        )
        st.selectbox(
            f"Unit of {one.name}", units, index=units.index(unit), key=_unit_key(one.name),
            label_visibility="hidden", width=130,
        )  # fmt: skip
        with st.container(width="stretch", key=f"pc-retention-{one.name}"):
            common.note(settings_wording.MEANINGS[one.name])


def _number_key(name: str) -> str:
    return f"retention-number-{name}"


def _unit_key(name: str) -> str:
    return f"retention-unit-{name}"


def _review(kept: Sequence[StoreSetting]) -> None:
    """Keep the values that differ, for the confirmation; the widgets of the form end with it."""
    shown = {one.name: float(one.value or 0.0) for one in kept}
    chosen = {name: _chosen(name) for name in shown}
    changes = {name: value for name, value in chosen.items() if value != shown[name]}
    if not changes:
        st.session_state[_RESULT] = ("quiet", "No value differs from the current one.")
        return
    _go_to(_REVIEW)
    st.session_state[_CHANGES] = changes
    st.session_state[_SHOWN] = {name: shown[name] for name in changes}


def _chosen(name: str) -> float:
    number: float | None = st.session_state.get(_number_key(name))
    unit: str = st.session_state.get(_unit_key(name)) or "seconds"
    return (number or 0.0) * settings_wording.UNITS[unit]


# the confirmation


def _confirmation(path: Path, page: SettingsPage) -> None:
    changes: Mapping[str, float] = st.session_state.get(_CHANGES, {})
    shown: Mapping[str, float] = st.session_state.get(_SHOWN, {})
    shorter = any(value < shown[name] for name, value in changes.items())
    with st.container(border=True, key="pc-retention-review"):
        common.message(
            "warning" if shorter else "quiet",
            f"Change the retention of {page.info.path.name} for every process that uses it?",
        )
        for name, value in changes.items():
            common.sentence(settings_wording.retention_change(name, shown[name], value))
        common.note(settings_wording.TAKES_EFFECT)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.button(
                "Change retention", key="retention-apply", type="primary", on_click=_apply, args=(path,)
            )
            st.button("Cancel", key="retention-cancel", on_click=_go_to, args=(None,))
            code = action_code.change_retention(path, changes)
            action_menu.draw(path, {"Change retention": code}, key="retention-code")


def _apply(path: Path) -> None:
    changes, shown = st.session_state.pop(_CHANGES, {}), st.session_state.pop(_SHOWN, {})
    _go_to(None)
    if not changes:
        return  # a second click on the same confirmation
    try:
        done = actions.change_retention(open_store(path), changes, shown=shown)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    settings_reads.clear()
    st.session_state[_CHANGED] = True
    st.session_state[_RESULT] = ("good" if done.ok else "bad", mask_text(done.text))

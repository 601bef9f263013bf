"""Draw the decision objectives of the settings page, and change them."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_table import Column, TableRow
from producer_core.dashboard.queries.decisions import objectives_page
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, common, dead_letter_reads
from producer_core.dashboard.wording import decisions as decision_wording
from producer_core.dashboard.wording import settings as settings_wording
from producer_core.errors import StoreError

_EDITING, _RESULT = "objectives-editing", "objectives-said"
_TOPIC, _PERCENT, _NUMBER, _UNIT = (f"objectives-{name}" for name in ("topic", "percent", "number", "unit"))
_COLUMNS = (Column("Topic"), Column("Objective"))


def show(path: Path) -> None:
    """Draw the objectives and the form, which does not refresh while it is filled in."""
    st.fragment(_show)(path)


def _show(path: Path) -> None:
    common.heading("Decision objectives")
    common.note(decision_wording.OBJECTIVES_NOTE)
    with common.panel(path):
        known = objectives_page(open_store(path))
        rows = [
            TableRow(topic, (decision_wording.topic_name(topic), str(one))) for topic, one in known.items()
        ]
        if rows:
            live_table.live_table(_COLUMNS, rows, key="settings-objectives", alt="Decision objectives")
        else:
            common.note(decision_wording.NO_OBJECTIVES)
        if said := st.session_state.get(_RESULT):
            common.message(*said)
        allowed, reason = actions.may_act(path)
        if allowed and st.session_state.get(_EDITING):
            _form(path)
        else:
            st.button(
                "Edit objectives", key="objectives-edit", icon=":material/edit:", disabled=not allowed,
                help=reason or None, on_click=_edit, args=(True,),
            )  # fmt: skip


def _edit(editing: bool) -> None:
    st.session_state[_EDITING] = editing
    st.session_state.pop(_RESULT, None)


def _form(path: Path) -> None:
    with st.container(border=True, key="pc-objectives-form"):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.text_input("Topic", key=_TOPIC, placeholder="* for all other topics", width=260)
            st.number_input("Percent", min_value=0.0, max_value=100.0, value=95.0, key=_PERCENT, width=140)
            st.number_input("Within", min_value=1.0, step=1.0, format="%g", value=4.0, key=_NUMBER, width=140)
            units = list(settings_wording.UNITS)
            st.selectbox(
                "Unit", units, index=units.index("hours"), key=_UNIT, label_visibility="hidden", width=130
            )
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.button(
                "Set objective", key="objectives-set", type="primary", on_click=_apply, args=(path, False)
            )
            st.button("Remove objective", key="objectives-remove", on_click=_apply, args=(path, True))
            st.button("Close", key="objectives-close", on_click=_edit, args=(False,))
            topic, percent, seconds = _entered()
            codes = {
                "Set objective": action_code.set_objective(path, topic, percent, seconds),
                "Remove objective": action_code.remove_objective(path, topic),
            }
            action_menu.draw(path, codes, key="objectives-code")


def _entered() -> tuple[str, float, float]:
    """Return the topic, the percentage and the seconds of the form."""
    state = st.session_state
    seconds = (state.get(_NUMBER) or 0.0) * settings_wording.UNITS[state.get(_UNIT) or "seconds"]
    return str(state.get(_TOPIC) or "").strip(), float(state.get(_PERCENT) or 0.0), float(seconds)


def _apply(path: Path, remove: bool) -> None:
    topic, percent, seconds = _entered()
    try:
        store = open_store(path)
        if remove:
            done = actions.remove_objective(store, topic)
        else:
            done = actions.set_objective(store, topic, percent, seconds)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    dead_letter_reads.decisions.clear()
    st.session_state[_RESULT] = ("good" if done.ok else "bad", mask_text(done.text))

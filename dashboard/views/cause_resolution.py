"""Draw whether the cause of a group is resolved or back, its history, and the form that resolves it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, common
from producer_core.dashboard.wording import resolutions
from producer_core.errors import StoreError
from producer_core.store.resolved_causes import CauseStatus, cause_status

_VERSION, _NOTE, _RESULT = (f"resolution-{name}" for name in ("version", "note", "said"))


def show(path: Path, fingerprint: str) -> None:
    """Draw the state and the form. It does not refresh by itself while the form is filled in."""
    st.fragment(_show)(path, fingerprint)


def _show(path: Path, fingerprint: str) -> None:
    with contextlib.suppress(StoreError):  # the group above shows the error
        if not open_store(path).rows("cause_versions", fingerprint=fingerprint):
            return
    with st.container(border=True, key="pc-resolution"), common.panel(path):
        status = cause_status(open_store(path), fingerprint)
        if status is not None:
            _status(status)
        if said := st.session_state.get(_RESULT):
            common.message(*said)
        allowed, reason = actions.may_act(path)
        if status is not None and status.is_resolved:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.button(
                    "Reopen", key="resolution-reopen", disabled=not allowed, help=reason or None, icon=":material/undo:",
                    on_click=_apply, args=(path, fingerprint, False),
                )  # fmt: skip
                action_menu.draw(
                    path, {"Reopen": action_code.reopen(path, fingerprint)}, key="resolution-reopen-code"
                )
            return
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.text_input(
                "Fixed in version", key=_VERSION, placeholder="optional", width=180, help=resolutions.VERSION_HELP,
                disabled=not allowed,
            )  # fmt: skip
            st.text_input("Note", key=_NOTE, placeholder="optional", width=320, disabled=not allowed)
            st.button(
                "Mark as resolved", key="resolution-resolve", disabled=not allowed,
                help=reason or resolutions.RESOLVE_HELP, icon=":material/task_alt:", on_click=_apply,
                args=(path, fingerprint, True),
            )  # fmt: skip
            given = {
                "fixed_in": st.session_state.get(_VERSION) or "",
                "note": st.session_state.get(_NOTE) or "",
            }
            code = action_code.resolve(path, fingerprint, **given)
            action_menu.draw(path, {"Mark as resolved": code}, key="resolution-resolve-code")


def _status(status: CauseStatus) -> None:
    now, zone = time.time(), common.zone()
    if text := resolutions.state(status, zone, now):
        common.message("warning" if status.is_back else "good", mask_text(text))
    for line in resolutions.history(status, zone, now):
        common.note(mask_text(line))


def _apply(path: Path, fingerprint: str, resolved: bool) -> None:
    store = open_store(path)
    if resolved:
        result = actions.resolve(
            store,
            fingerprint,
            fixed_in=st.session_state.get(_VERSION) or "",
            note=st.session_state.get(_NOTE) or "",
        )
    else:
        result = actions.reopen(store, fingerprint)
    st.session_state[_RESULT] = ("good" if result.ok else "warning", mask_text(result.text))

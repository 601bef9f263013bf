"""Run an action on a replay, and show why it failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common, reads
from producer_core.errors import StoreError
from producer_core.store import Store

_ERROR = "replay_error"


def act(
    path: Path, operation_id: str, what: Callable[[Store, str], actions.ActionResult]
) -> actions.ActionResult:
    """Run the action, and store its error for the place where the replay is shown."""
    try:
        done = what(open_store(path), operation_id)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    reads.clear()
    st.session_state[_ERROR] = (operation_id, "" if done.ok else done.text)
    return done


def show_error(operation_id: str) -> None:
    """Show why the last action on this replay failed."""
    failed_id, text = st.session_state.get(_ERROR, ("", ""))
    if text and failed_id == operation_id:
        common.message("bad", mask_text(text))

"""An act on a replay by a click, and why it did nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import common, reads
from producer_core.errors import StoreError
from producer_core.store import Store

_TROUBLE = "replay_trouble"


def act(
    path: Path, operation_id: str, what: Callable[[Store, str], actions.ActionResult]
) -> actions.ActionResult:
    """Act on a replay; what went wrong is said where it is shown."""
    try:
        done = what(opened(path), operation_id)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    reads.again()
    st.session_state[_TROUBLE] = (operation_id, "" if done.ok else done.text)
    return done


def trouble(operation_id: str) -> None:
    """Why the last act on this replay did nothing."""
    about, said = st.session_state.get(_TROUBLE, ("", ""))
    if said and about == operation_id:
        common.say("bad", mask_text(said))

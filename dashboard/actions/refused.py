"""Audit clicks of read-only users, which Streamlit discards."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from producer_core.dashboard.actions import roles
from producer_core.dashboard.auth import access
from producer_core.errors import ProducerError, StoreError
from producer_core.store import Store

_RECORDED = "refused_clicks"
_ACTION_KEYS = re.compile(
    r"(?:replay|replay_confirm|replay_discard|clear|restore|undo|dead_letter_reveal)$"
    r"|dead_letter_edit_|edit_(?:save|undo|rebase|discard)_"
    r"|(?:ack|acknowledge|silence|unsilence|test|pause|resume|cancel|go|export|retention|approve|refuse|withdraw)[-_]"
)
"""Keys of the buttons that require the right to act."""


def may_act(path: Path) -> tuple[bool, str]:
    """Return whether the user may act on the store at this path, and otherwise the reason.

    Audit clicks that only a forged message can contain. A view calls the function before it draws its buttons: Streamlit
    discards the value of a disabled button only when it draws the button, so the session state still contains a forged
    click here.
    """
    allowed, reason = access.may_act()
    if allowed and (reason := roles.reason_against(_store(path))):
        allowed = False
    streamlit: Any = sys.modules.get("streamlit")
    if not allowed and streamlit is not None and access.user():
        _record(path, streamlit.session_state, reason)
    return allowed, reason


def _record(path: Path, state: MutableMapping[str, Any], reason: str) -> None:
    """Record each click once, although a page calls `may_act` for several buttons."""
    clicked = {str(key) for key, value in state.items() if value is True and _ACTION_KEYS.match(str(key))}
    recorded = state.get(_RECORDED, frozenset())
    if clicked - recorded:
        with contextlib.suppress(ProducerError):
            store = Store.open(path, create=False)
            for key in sorted(clicked - recorded):
                store.audit(
                    who=access.user(), origin="dashboard", action=re.split("[-_]", key)[0],
                    selection={"button": key}, count=0, outcome=f"Refused: {reason}",
                )  # fmt: skip
    if clicked != recorded:
        state[_RECORDED] = frozenset(clicked)


def _store(path: Path) -> Store | None:
    """Return the store of the page; None if it cannot be opened, and in a notebook, whose acts check the role."""
    if sys.modules.get("streamlit") is None:
        return None
    from producer_core.dashboard.server.stores import open_store

    try:
        store: Store = open_store(path)
    except StoreError:
        return None
    return store

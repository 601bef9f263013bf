"""Clicks of users without the right to act: Streamlit discards them, and the audit records them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from producer_core.dashboard.auth import access
from producer_core.errors import ProducerError
from producer_core.store import Store, default_path

_RECORDED = "refused_clicks"
_ACTS = re.compile(
    r"(?:replay|replay_sure|replay_not|clear|restore|undo|letter_reveal)$"
    r"|(?:ack|acknowledge|loud|quiet|unsilence|test|pause|resume|cancel|go|export)[-_]"
)
"""Keys of the buttons that need the right to act."""


def may_act() -> tuple[bool, str]:
    """Return whether the user may act, and else the reason; record clicks that only a forged message can contain.

    A view calls it before it draws its buttons. Streamlit discards the value of a disabled button only when the button
    is drawn, so a forged click is still in the state of the session here.
    """
    allowed, reason = access.may_act()
    streamlit: Any = sys.modules.get("streamlit")
    if not allowed and streamlit is not None and access.user():
        _record(streamlit.session_state, reason)
    return allowed, reason


def _record(state: MutableMapping[str, Any], reason: str) -> None:
    """Record each click once, although several buttons of a page ask."""
    clicked = {str(key) for key, value in state.items() if value is True and _ACTS.match(str(key))}
    recorded = state.get(_RECORDED, frozenset())
    if clicked - recorded:
        with contextlib.suppress(ProducerError):
            store = Store.open(_path(), create=False)
            for key in sorted(clicked - recorded):
                store.audit(
                    who=access.user(), origin="dashboard", action=re.split("[-_]", key)[0],
                    selection={"button": key}, count=0, outcome=f"Refused: {reason}",
                )  # fmt: skip
    if clicked != recorded:
        state[_RECORDED] = frozenset(clicked)


def _path() -> Path:
    return Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())

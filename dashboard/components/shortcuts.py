"""Handle the keys of the dead letters page, which press the buttons of the selection or of the open record."""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.theme import asset

KEYS = (
    ("↑ ↓", "Previous or next record"),
    ("Enter", "Open or close the record"),
    ("r", "Replay the selected records, or the open one"),
    ("c", "Clear the selected records, or the open one"),
    ("x", "Select the record"),
    ("Esc", "Close the record"),
    ("?", "Show these keys"),
)
"""The keys and what they do. Without a selection and an open record, r and c do nothing."""

_TABLE = ".pc-table.pc-dead-letters"


def shortcuts(selected: int, current: str | None) -> None:
    """Handle the keys while the page is open.

    The buttons above the list apply to `selected` records, if not 0, and those of the open record to `current`.
    """
    bar = ".st-key-pc-dead-letters-bar"
    data = {
        "table": _TABLE,
        "details": ".st-key-pc-dead-letter",
        "selected": selected,
        "current": current,
        "selection": {
            "r": [f'{bar} [class*="st-key-replay"] button'],
            "c": [f'{bar} [class*="st-key-clear"] button'],
        },
        "record": {
            "r": ['[class*="st-key-dead_letter_replay"] button'],
            "c": ['[class*="st-key-dead_letter_clear"] button'],
        },
        "previous": ".st-key-dead_letter_previous button",
        "next": ".st-key-dead_letter_next button",
        "close": ".st-key-dead_letter_close button",
        "help": ".st-key-dead_letters_keys button",
    }
    _component()(key="dead_letters_shortcuts", height="content", data=data)


@cache
def _component() -> Any:
    return st.components.v2.component(
        "shortcuts",
        html="<div class='pc-shortcuts' aria-hidden='true'></div>",
        js=asset("components/shortcuts.js"),
        isolate_styles=False,
    )

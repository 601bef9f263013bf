"""Draw a button that copies a text to the clipboard of the browser."""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.theme import asset


def copy_button(label: str, text: str, *, key: str, tooltip: str = "") -> None:
    """Draw the button; it is disabled if there is no text."""
    _component()(key=key, height="content", data={"label": label, "text": text, "tooltip": tooltip})


@cache
def _component() -> Any:
    return st.components.v2.component(
        "copy_button",
        html="<button type='button' class='pc-button'></button>",
        js=asset("components/clipboard.js") + asset("components/copy_button.js"),
        isolate_styles=False,
    )

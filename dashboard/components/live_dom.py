"""Draw a tree of elements and update it in place, so that clicks, selections and hovers survive each refresh.

`st.html` replaces the whole element whenever a number changes, and a link that is replaced under the pointer loses the
click. The component inserts all text as text and sets only the attributes listed here, so no content becomes markup.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.html import Node, link, node, text_of
from producer_core.dashboard.theme import asset

__all__ = ["Node", "component", "link", "live_dom", "node", "script", "text_of"]


def live_dom(*tree: Node | str, key: str) -> None:
    """Draw the tree under a stable key."""
    component()(data={"tree": list(tree)}, key=key)


@cache
def component() -> Any:
    """Return the component that draws trees, with and without selectable rows."""
    return st.components.v2.component(
        "live_dom",
        html="<div class='pc-live'></div>",
        js=script(),
        isolate_styles=False,
    )


def script() -> str:
    """Return the component's module. Its files are joined, because the component cannot import them by URL."""
    return "".join(asset(f"components/{name}.js") for name in ("browser_times", "row_selection", "live_dom"))

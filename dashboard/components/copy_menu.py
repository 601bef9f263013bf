"""Draw a quiet button with a menu of texts that it copies to the clipboard of the browser."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import streamlit as st

from producer_core.dashboard.theme import asset


class CopyGroup(NamedTuple):
    """The texts of one action, each with the label of its menu item."""

    name: str
    texts: Sequence[tuple[str, str]]


def copy_menu(groups: Sequence[CopyGroup], *, key: str) -> None:
    """Draw the menu. A refresh of its texts does not close it."""
    data = {"groups": [group._asdict() for group in groups]}
    _component()(key=key, width="content", height="content", data=data)


@cache
def _component() -> Any:
    return st.components.v2.component(
        "copy_menu",
        html=(
            "<button type='button' class='pc-copy' aria-haspopup='menu' aria-expanded='false' title='Copy as code' "
            "aria-label='Copy as code'>&lt;/&gt;</button><div popover role='menu' aria-label='Copy as code' "
            "class='pc-copy-menu'></div>"
        ),
        js=asset("components/clipboard.js") + asset("components/copy_menu.js"),
        isolate_styles=False,
    )

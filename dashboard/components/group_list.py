"""List the groups of dead letters with count, trend and meaning; a click selects a group by its fingerprint.

The component inserts all content as text, so no error text becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.theme import asset

COLLAPSED = 4
"""Number of groups in the collapsed list; a button shows the others."""

_HTML = "<div class='pc-groups'></div>"


@dataclass(frozen=True)
class GroupItem:
    """Describe one group by texts. `first` and `last` are in seconds since 1970."""

    id: str
    count: str
    title: str
    meaning: str
    sample: str
    details: str
    first: float
    last: float
    trend: tuple[int, ...]
    trend_text: str
    selected: bool


def group_list(items: Sequence[GroupItem], *, key: str, on_select: Callable[[str | None], None]) -> None:
    """Draw the list; call `on_select` with the fingerprint of the selected group, or None when it is deselected."""

    def selected() -> None:
        found = st.session_state[key].get("select")
        if found:
            on_select(found["id"])

    data = {"groups": [asdict(item) for item in items], "collapsed": COLLAPSED}
    _component()(data=data, key=key, on_select_change=selected)


@cache
def _component() -> Any:
    return st.components.v2.component(
        "group_list",
        html=_HTML,
        css=asset("components/group_list.css"),
        js=asset("components/browser_times.js") + asset("components/group_list.js"),
        isolate_styles=False,
    )

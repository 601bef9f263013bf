"""Draw a live table whose rows are selected by id: one by a click, and any number by checkboxes.

`st.dataframe` reports the positions of selected rows, which are other rows after the next refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from producer_core.dashboard.components.live_dom import component
from producer_core.dashboard.components.live_table import Column, TableRow, table
from producer_core.dashboard.html import Node, node


@dataclass(frozen=True)
class Selection:
    """Describe how one row is selected; the first button of each row shows whether it is the current one.

    `on_change` is called with the id of the new current row, or None. A click scrolls to the table, beside which the
    element `details`, a CSS selector, is drawn; on a phone it scrolls to that element. While the pointer is over the
    table, new rows do not move the row under it: a table that `scrolls` adjusts its scroll position, another one keeps
    the order of its rows. Only the first `collapsed` rows and the current one are shown until the button `expand` is
    pressed; 0 shows all.
    """

    current: str | None
    on_change: Callable[[str | None], None]
    details: str = ""
    scrolls: bool = True
    collapsed: int = 0
    expand: str = ""


@dataclass(frozen=True)
class Checkboxes:
    """Describe the checkboxes of the rows. A new `version` clears them; `page` identifies the page of the list."""

    version: int
    page: str


def selectable_table(
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    selection: Selection,
    checkboxes: Checkboxes | None = None,
    *,
    look: str,
    key: str,
    alt: str,
) -> tuple[str, ...]:
    """Draw the table and return the ids of the checked rows, including those on other pages of the list.

    `look` is the table's CSS class. The checked rows survive a visit to another page of the dashboard.
    """

    def changed() -> None:
        found = st.session_state[key].get("current")
        if found:
            selection.on_change(found["id"])

    version = checkboxes.version if checkboxes else 0
    saved = f"{key} of {version}"
    before: tuple[str, ...] = st.session_state.get(saved, ())
    tree = table(
        columns, rows, alt=alt, look=look, checkboxes=checkboxes is not None, scrolls=selection.scrolls
    )
    if 0 < selection.collapsed < len(rows):
        tree[2].append(_toggle(selection.expand))
    found = component()(
        data={
            "tree": [tree],
            "selection": {
                "current": selection.current,
                "details": selection.details,
                "scrolls": selection.scrolls,
                "collapsed": selection.collapsed,
                "version": version,
                "page": checkboxes.page if checkboxes else "",
                "checked": list(before),
            },
        },
        key=key,
        default={"checked": {"version": version, "ids": list(before)}},
        on_checked_change=_no_callback,
        on_current_change=changed,
    )
    checked = st.session_state[saved] = _ids(found, version)
    return checked


def _toggle(expand: str) -> Node:
    return node("button", node("span", expand), node("span", "Show fewer"), class_="pc-toggle", type="button")


def _ids(found: Mapping[str, Any], version: int) -> tuple[str, ...]:
    """Return the ids that the browser reports for this version; the checked rows of an older version are void."""
    checked = found.get("checked") or {}
    return tuple(checked.get("ids") or ()) if checked.get("version") == version else ()


def _no_callback() -> None:
    """Do nothing: Streamlit reruns the fragment after a change of the checked rows."""

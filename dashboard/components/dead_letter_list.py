"""List dead letters that are selected by id, so that a selection stays correct while rows appear and disappear.

`st.dataframe` reports the positions of selected rows, which are other dead letters after the next refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import streamlit as st

from producer_core.dashboard.theme import asset

_HTML = "<div class='pc-dead-letters' role='region' tabindex='0'></div>"


class DeadLetterRow(NamedTuple):
    """Describe one dead letter: its id, the time of its failure in seconds since 1970, and its other cells as text."""

    id: str
    at: float
    cells: tuple[str, ...]


def dead_letter_list(
    columns: Sequence[str],
    rows: Sequence[DeadLetterRow],
    *,
    key: str,
    version: int,
    page: str,
    open: str | None,
    on_open: Callable[[str | None], None],
    alt: str,
) -> tuple[str, ...]:
    """Draw the list and return the ids of the selected dead letters, including those on other pages of the list.

    `on_open` is called with the id of the dead letter to open, or None. A new `version` clears the selection. `page`
    identifies the page of the list. The selection survives a visit to another page of the dashboard.
    """

    def opened() -> None:
        found = st.session_state[key].get("open")
        if found:
            on_open(found["id"])

    saved = f"{key} of {version}"
    before: tuple[str, ...] = st.session_state.get(saved, ())
    data = {
        "columns": list(columns),
        "rows": [{"id": row.id, "at": row.at, "cells": list(row.cells)} for row in rows],
        "version": version,
        "page": page,
        "open": open,
        "selected": list(before),
        "alt": alt,
    }
    found = _component()(
        data=data,
        key=key,
        default={"selected": {"version": version, "ids": list(before)}},
        on_selected_change=_no_callback,
        on_open_change=opened,
    )
    selected = st.session_state[saved] = _ids(found, version)
    return selected


def _ids(found: Mapping[str, Any], version: int) -> tuple[str, ...]:
    """Return the ids that the browser reports for this version; the selection of an older version is void."""
    selection = found.get("selected") or {}
    return tuple(selection.get("ids") or ()) if selection.get("version") == version else ()


def _no_callback() -> None:
    """Do nothing: Streamlit reruns the fragment after a change of the selection."""


@cache
def _component() -> Any:
    return st.components.v2.component(
        "dead_letter_list",
        html=_HTML,
        css=asset("components/dead_letter_list.css"),
        js=asset("components/browser_times.js") + asset("components/dead_letter_list.js"),
        isolate_styles=False,
    )

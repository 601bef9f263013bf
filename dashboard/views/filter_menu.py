"""Draw the menu of one filter in the header, whose selection is in the URL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from producer_core.dashboard.views import common
from producer_core.errors import StoreError


def options(read: Callable[[Path], tuple[str, ...]], path: Path) -> tuple[str, ...]:
    """Return no options while the store cannot be read; the panels below show the reason."""
    with contextlib.suppress(StoreError):
        return read(path)
    return ()


def selected(key: str) -> str | None:
    """Return what the menu or the URL selects, also before the menu is drawn."""
    current: str | None = st.session_state.get(key) or st.query_params.get(key)
    return current


def select(label: str, everything: str, known: tuple[str, ...], key: str) -> str | None:
    """Draw a filter. The selected option remains available after it has disappeared from the store."""
    current = selected(key)
    shown = known if current in (None, everything) or current in known else (*known, current)
    chosen: str = st.selectbox(
        label, (everything, *shown), key=key, bind="query-params", label_visibility="collapsed", width=170
    )
    return None if chosen == everything else chosen


def warn_if_unknown(kind: str, chosen: str | None, known: tuple[str, ...]) -> None:
    """Warn that the store has no such name: the link may be outdated or mistyped, and the page would show nothing."""
    if chosen is not None and known and chosen not in known:
        common.message("warning", f"This store has no {kind} {chosen}. Select another {kind}, or all.")

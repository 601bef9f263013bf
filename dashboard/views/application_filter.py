"""Draw the filters for application and cluster. They appear once the store has several, or the URL selects one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from producer_core.dashboard.queries.view import NO_APPLICATION, View
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common
from producer_core.errors import StoreError

ALL_APPLICATIONS = "All applications"
ALL_CLUSTERS = "All clusters"

_cached = st.cache_data(ttl=15, max_entries=32, show_spinner=False)


def select(path: Path) -> tuple[str | None, str | None]:
    """Draw the filters. Return the selected application (an empty text for none) and cluster; None means all."""
    application = _select("application", ALL_APPLICATIONS, _options(applications, path))
    cluster = _select("cluster", ALL_CLUSTERS, _options(clusters, path))
    return "" if application == NO_APPLICATION else application, cluster


def inherited(view: View) -> dict[str, str | None]:
    """Return the selections of a view as values of the filters."""
    query = view.query
    return {"application": query.get("application"), "cluster": query.get("cluster")}


@_cached  # type: ignore[untyped-decorator]  # streamlit is Any here
def applications(path: Path) -> tuple[str, ...]:
    """Return the applications of the store by name, those without a name last."""
    found = [row["application"] for row in open_store(path).rows("applications")]
    return (*filter(None, found), *([NO_APPLICATION] if "" in found else []))


@_cached  # type: ignore[untyped-decorator]
def clusters(path: Path) -> tuple[str, ...]:
    return tuple(row["cluster_id"] for row in open_store(path).rows("clusters"))


def _options(read: Callable[[Path], tuple[str, ...]], path: Path) -> tuple[str, ...]:
    """Return no options while the store cannot be read; the panels below show the reason."""
    with contextlib.suppress(StoreError):
        return read(path)
    return ()


def _select(key: str, everything: str, options: tuple[str, ...]) -> str | None:
    """Draw a filter. The selected option remains available after it has disappeared from the store."""
    current = st.session_state.get(key) or st.query_params.get(key)
    if len(options) < 2 and current in (None, everything):
        return None
    known = options if current in (None, everything) or current in options else (*options, current)
    selected = st.selectbox(
        key.capitalize(),
        (everything, *known),
        key=key,
        bind="query-params",
        label_visibility="collapsed",
        width=170,
    )
    if selected == everything:
        return None
    if options and selected not in options:
        common.message("warning", f"This store has no {key} {selected}. Select another {key}, or all.")
    return str(selected)

"""Draw the filters for application and cluster. They appear once the store has several, or the URL selects one."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from producer_core.dashboard.queries.view import NO_APPLICATION, View
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import filter_menu

ALL_APPLICATIONS = "All applications"
ALL_CLUSTERS = "All clusters"

_cached = st.cache_data(ttl=15, max_entries=32, show_spinner=False)


def select(path: Path) -> tuple[str | None, str | None]:
    """Draw the filters. Return the selected application (an empty text for none) and cluster; None means all."""
    application = _select("application", ALL_APPLICATIONS, filter_menu.options(applications, path))
    cluster = _select("cluster", ALL_CLUSTERS, filter_menu.options(clusters, path))
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


def _select(key: str, everything: str, known: tuple[str, ...]) -> str | None:
    if len(known) < 2 and filter_menu.selected(key) in (None, everything):
        return None
    chosen = filter_menu.select(key.capitalize(), everything, known, key)
    filter_menu.warn_if_unknown(key, chosen, known)
    return chosen

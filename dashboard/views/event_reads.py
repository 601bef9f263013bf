"""Read the events of the charts for all browsers that show the same view."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard.charts.events import shapes
from producer_core.dashboard.queries.chart_events import chart_events
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.server.stores import open_store
from producer_core.errors import StoreError


def chart_marks(path: Path, view: View) -> list[dict[str, Any]]:
    """Return the marks of the charts; none while the store cannot be read, because the charts are useful without."""
    try:
        marks: list[dict[str, Any]] = _marks(path, view)
    except StoreError:
        return []
    return marks


@st.cache_data(ttl=2, max_entries=32, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def _marks(path: Path, view: View) -> list[dict[str, Any]]:
    return shapes(chart_events(open_store(path), view, time.time()))

"""Read the events of the charts for all browsers that show the same view."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard.charts.events import shapes
from producer_core.dashboard.queries.chart_events import chart_events
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.server.stores import open_store
from producer_core.errors import StoreError

_SHORT = 3600
"""Seconds of the longest range whose events are read every few seconds; those of a longer one hardly move."""


def chart_marks(path: Path, view: View) -> list[dict[str, Any]]:
    """Return the marks of the charts; none while the store cannot be read, because the charts are useful without."""
    marks: list[dict[str, Any]] = (_marks if view.seconds <= _SHORT else _marks_of_long_range)(path, view)
    return marks


@st.cache_data(ttl=2, max_entries=32, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def _marks(path: Path, view: View) -> list[dict[str, Any]]:
    return _read(path, view)


@st.cache_data(ttl=30, max_entries=32, show_spinner=False)  # type: ignore[untyped-decorator]
def _marks_of_long_range(path: Path, view: View) -> list[dict[str, Any]]:
    return _read(path, view)


def _read(path: Path, view: View) -> list[dict[str, Any]]:
    """Return the marks, or none after a failure: a read that exceeds its limit must not be repeated at each refresh."""
    with contextlib.suppress(StoreError):
        now = time.time()
        return shapes(chart_events(open_store(path), view, now), view.since(now), view.at(now))
    return []

"""Read the settings page for all browsers and all fragments of the page."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard.queries.settings import SettingsPage, settings
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import adaptive_cache

_KEY = "settings"


def read(path: Path) -> SettingsPage | None:
    """Return the page, or None while the store cannot be read; the error is on the page."""
    return adaptive_cache.read(path, _KEY, path, lambda: read_settings(path))


@st.cache_data(ttl=2.0, max_entries=8, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def read_settings(path: Path) -> SettingsPage:
    return settings(open_store(path), time.time())


def clear() -> None:
    """Read again at the next call, after an action has changed a setting."""
    read_settings.clear()
    adaptive_cache.expire(_KEY)

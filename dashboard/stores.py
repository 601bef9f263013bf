"""The store of this page, opened once for all sessions, and what to say when it cannot be."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from producer_core.errors import StoreError, StoreUnavailable
from producer_core.store import Store


@st.cache_resource(show_spinner=False, max_entries=4)  # type: ignore[untyped-decorator]  # streamlit is Any here
def opened(path: Path) -> Store:
    """The store, which must be there; StoreError says what to do when it is not."""
    return Store.open(path, create=False)


def trouble(path: Path, error: StoreError) -> str:
    """What to tell a person who opened the page on a store that cannot be read."""
    if isinstance(error, StoreUnavailable) and not path.exists():
        return (
            f"There is no store at {path} yet. This page waits for it and opens by itself. "
            f"Start a producer with store='{path}', or see one at once with: make run"
        )
    return str(error)
